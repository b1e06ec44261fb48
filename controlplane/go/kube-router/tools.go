//go:build tools

// Package tools names what this module builds, so that go.mod keeps it.
package tools

import _ "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router"
