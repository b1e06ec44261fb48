"""Which policies' rows a rule or a drop names, whatever it says."""

from __future__ import annotations

import pytest

from cli.policies.keys import policy_keys, refusing
from policy.watches.cluster_policies import POLICIES
from view.model.objects import CLUSTER_POLICY, CUSTOM_PATHS


@pytest.mark.parametrize(
    ("chain", "note", "keys"),
    [
        ("deny-ingress-ab-0", "Admin ingress[0] of no-db nobody", ("clusternetworkpolicy//no-db",)),
        ("tier-baseline-egress-ab", "Baseline egress[12] of last.v2", ("clusternetworkpolicy//last.v2",)),
        ("group-ingress-ab", "isolated by a/x b/y", ("networkpolicy/a/x", "networkpolicy/b/y")),
        ("policy-egress-ab", "a/x egress[3]", ("networkpolicy/a/x",)),
        ("group-ingress-ab", "it belongs to no connection", ()),
        ("KUBE-SERVICES", "shop/web cluster IP", ()),
        ("stray", "", ()),
        ("policy-egress-ab", "", ()),
        ("group-ingress-ab", "isolated by / a/ /b", ()),
    ],
)
def test_the_policies_of_a_rule(chain: str, note: str, keys: tuple[str, ...]) -> None:
    assert policy_keys(chain, note) == keys


def test_the_policies_of_a_drop() -> None:
    denied = "ClusterNetworkPolicy: Admin ingress[0] of no-db nobody"
    assert refusing(["a/x"], denied) == ("clusternetworkpolicy//no-db",)
    assert refusing(["a/x", "b/y"], "") == ("networkpolicy/a/x", "networkpolicy/b/y")
    assert refusing([], "ClusterNetworkPolicies, as it belongs to no connection") == ()


def test_the_page_watches_what_the_daemon_enforces() -> None:
    assert CUSTOM_PATHS[CLUSTER_POLICY] == POLICIES
