"""Upstream's test suites against our nodes: which tests, how they are run, and what came of them.

conformance runs test/e2e of k8s.io/kubernetes against a cluster, node_suite runs test/e2e_node on a node made for it;
tiers.txt lists the tests of the daily tiers. Open work/conformance.py first.
"""
