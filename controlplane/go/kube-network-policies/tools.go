//go:build tools

// Package tools names what this module builds, so that go.mod keeps it.
package tools

import _ "sigs.k8s.io/kube-network-policies/cmd"
