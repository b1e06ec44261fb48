"""Upstream's binaries, built from the pinned Go modules in controlplane/go into the cache, when asked for.

Upstream's counterpart: hack/make-rules/build.sh of k8s.io/kubernetes. Open model.py first: the table of what can be
built and with which flags; work.py builds, edge.py finds or installs the Go toolchain.
"""
