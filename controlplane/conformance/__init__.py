"""Upstream's e2e suite against a cluster: which tests, how they are run, what came of them."""
