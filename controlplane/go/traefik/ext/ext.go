// Package ext holds the places where Traefik's configuration can be extended; here nothing extends it.
package ext

// HTTP is embedded in the HTTP section.
type HTTP struct{}

// Router is embedded in every HTTP router.
type Router struct{}
