"""Our CRD of ClusterNetworkPolicy: one path, the names that the daemon watches, the limits that it counts with."""

from __future__ import annotations

from controlplane.cluster.plan import manifests, policy_api
from controlplane.cluster.plan.certificates import POLICY_USER
from nodelib.kube.definition import CRDS
from policy.plan import parse_cluster
from policy.watches import cluster_policies


def test_the_daemon_watches_what_the_crd_defines_and_may_do_so() -> None:
    crd = policy_api.crd()
    assert manifests.path_of(crd) == f"{CRDS}/{policy_api.NAME}"
    assert f"/apis/{policy_api.GROUP}/{policy_api.VERSION}/{policy_api.PLURAL}" == cluster_policies.POLICIES
    (role,) = [
        one for one in manifests.rights() if one["kind"] == "ClusterRole" and one["metadata"]["name"] == POLICY_USER
    ]
    granted = {(group, what) for rule in role["rules"] for group in rule["apiGroups"] for what in rule["resources"]}
    assert {
        (policy_api.GROUP, policy_api.PLURAL),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        ("", "nodes"),
    } <= granted
    (named,) = [rule["resourceNames"] for rule in role["rules"] if "customresourcedefinitions" in rule["resources"]]
    assert named == [policy_api.NAME]


def test_the_limits_are_those_that_the_daemon_counts_with() -> None:
    spec = policy_api.crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    for direction, key in (("ingress", "from"), ("egress", "to")):
        rule = spec[direction]["items"]["properties"]
        lists = [spec[direction], rule[key], rule["protocols"]]
        assert {one["maxItems"] for one in lists} == {parse_cluster.MOST}
        assert rule["name"]["maxLength"] == parse_cluster.LONGEST_NAME
    networks = spec["egress"]["items"]["properties"]["to"]["items"]["properties"]["networks"]
    assert networks["maxItems"] == parse_cluster.MOST
