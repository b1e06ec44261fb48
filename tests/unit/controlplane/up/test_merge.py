"""What a second `up` takes over, and what it refuses: nodes, files, ranges."""

from __future__ import annotations

import pytest

from controlplane.cluster.model import Cluster, Options, numbered
from controlplane.config.model import Custom, Member, Mount, Port, Ranges, Taint
from controlplane.up import plan
from nodelib.errors import Invalid

HEAD, GPU = Member("head", 1), Member("gpu1", 2, taints=(Taint("gpu", "NoSchedule"),))
NAMED = Options(nodes=2, members=(HEAD, GPU))


def names(options: Options) -> list[tuple[str, int]]:
    return [(one.name, one.number) for one in options.all_members]


@pytest.mark.parametrize(
    ("members", "count", "expected"),
    [
        pytest.param((), 2, [("node1", 1), ("node2", 2)], id="plain"),
        pytest.param((HEAD, GPU), 3, [("head", 1), ("gpu1", 2), ("node3", 3)], id="one more than is listed"),
        pytest.param(
            (Member("node1", 1), Member("node3", 3)), 3, [("node1", 1), ("node3", 3), ("node2", 2)], id="a gap"
        ),
        pytest.param(
            (Member("node2"), Member("x")), 3, [("node2", 1), ("x", 2), ("node3", 3)], id="numbers are chosen"
        ),
        pytest.param((Member("node3", 1),), 2, [("node3", 1), ("node2", 2)], id="a name of another number"),
        pytest.param((Member("node2", 1),), 2, [("node2", 1), ("node1", 2)], id="a name that is taken"),
    ],
)
def test_every_node_has_a_name_and_a_number(
    members: tuple[Member, ...], count: int, expected: list[tuple[str, int]]
) -> None:
    assert [(one.name, one.number) for one in numbered(members, count)] == expected


@pytest.mark.parametrize(
    ("known", "asked", "explicit", "expected"),
    [
        pytest.param(Options(), Options(nodes=3), {"nodes"}, ["node1", "node2", "node3"], id="more nodes"),
        pytest.param(NAMED, Options(), set(), ["head", "gpu1"], id="nothing was asked for"),
        pytest.param(NAMED, Options(nodes=3), {"nodes"}, ["head", "gpu1", "node3"], id="one more beside named ones"),
        pytest.param(
            Options(), Options(nodes=2, members=(Member("node2"), Member("node1"))), {"nodes", "members"},
            ["node1", "node2"], id="the order stays, as the first one holds the control plane",
        ),
        pytest.param(
            NAMED, Options(nodes=3, members=(Member("new"), Member("gpu1"), Member("head"))), {"nodes", "members"},
            ["head", "gpu1", "new"], id="a new one comes last",
        ),
    ],
)  # fmt: skip
def test_nodes_of_a_second_up(known: Options, asked: Options, explicit: set[str], expected: list[str]) -> None:
    merged = plan.merge("lab", known, asked, explicit)
    assert [name for name, _ in names(merged)] == expected and merged.nodes == len(expected)
    assert [number for _, number in names(merged)] == list(range(1, len(expected) + 1))


def test_labels_taints_and_kubelet_of_a_living_node_change() -> None:
    new = Member("gpu1", labels={"a": "b"}, kubelet={"maxPods": 3})
    merged = plan.merge("lab", NAMED, Options(nodes=2, members=(Member("head"), new)), {"nodes", "members"})
    assert merged.members[1] == Member("gpu1", 2, labels={"a": "b"}, kubelet={"maxPods": 3})


def test_a_file_replaces_what_only_files_say_and_no_file_keeps_it() -> None:
    known = Options(custom=Custom(ports=(Port(80, 30080),)))
    assert plan.merge("lab", known, Options(), set()).custom == known.custom
    assert plan.merge("lab", known, Options(), {"custom"}).custom == Custom()


@pytest.mark.parametrize(
    ("asked", "explicit", "message", "action"),
    [
        pytest.param(Options(nodes=1), {"nodes"}, "`up` removes none", "node remove gpu1 --name lab", id="fewer"),
        pytest.param(
            Options(nodes=1, members=(Member("head"),)), {"nodes", "members"}, "has the node gpu1",
            "node remove gpu1", id="not listed",
        ),
        pytest.param(
            Options(nodes=2, members=(Member("head"), Member("gpu1", mounts=(Mount("/a", "/b"),)))),
            {"nodes", "members"}, "its mounts cannot change", "Leave its mounts", id="mounts",
        ),
        pytest.param(
            Options(nodes=2, members=(Member("head"), Member("gpu1", cpus=1))), {"nodes", "members"},
            "its cpus cannot change", "node remove gpu1", id="CPUs",
        ),
        pytest.param(
            Options(network_policy=False), {"network_policy"}, "was made with --network-policy", "down --name lab",
            id="a switch",
        ),
        pytest.param(Options(proxy_mode="nftables"), {"proxy_mode"}, "cannot change", "down --name lab", id="mode"),
        pytest.param(
            Options(load_balancer_pool="10.89.3.9-10.89.3.12"), {"load_balancer_pool"},
            "was made without --load-balancer-pool, and 10.89.3.9-10.89.3.12 was", "down --name lab", id="pool",
        ),
    ],
)  # fmt: skip
def test_what_cannot_change_is_said(asked: Options, explicit: set[str], message: str, action: str) -> None:
    with pytest.raises(Invalid) as caught:
        plan.merge("lab", NAMED, asked, explicit)
    assert message in caught.value.message and action in caught.value.action


def test_ranges_of_a_new_cluster_and_of_a_living_one() -> None:
    cluster = Cluster("lab", "10.89.3.0/24", Options(ip_family="dual"))
    made = plan.with_ranges(cluster, Ranges("", "10.60.0.0/16,fd00:60::/56", "10.61.0.0/20,fd00:61::/112"))
    assert made.pod_cidrs == ("10.60.0.0/16", "fd00:60::/56") and made.dns_service == "10.61.0.10"
    plan.check_overlaps(made)
    plan.check_ranges_kept(made, Ranges("10.89.3.0/24", "10.60.0.0/16,fd00:60::/56", ""))
    with pytest.raises(Invalid, match="podSubnet"):
        plan.check_ranges_kept(made, Ranges(pods="10.62.0.0/16,fd00:60::/56"))
    with pytest.raises(Invalid, match="'foo' does not appear to be") as caught:
        plan.check_ranges_kept(made, Ranges(nodes="foo"))
    assert caught.value.obj == "--subnet foo" and "CIDR" in caught.value.action
    with pytest.raises(Invalid, match=r"10\.89\.0\.0/16 of the pods overlaps 10\.89\.3\.0/24 of the nodes"):
        plan.check_overlaps(plan.with_ranges(cluster, Ranges(pods="10.89.0.0/16")))
    with pytest.raises(Invalid, match="family"):
        plan.with_ranges(Cluster("lab", "", Options()), Ranges(pods="fd00::/56"))


def test_a_kubelet_configuration_that_would_be_refused_is_refused_first() -> None:
    def cluster(**kubelet: object) -> Cluster:
        return Cluster("lab", "10.89.3.0/24", Options(custom=Custom(kubelet=kubelet)))

    plan.check_kubelets(cluster(maxPods=20))
    with pytest.raises(Invalid, match="imageGC"):
        plan.check_kubelets(cluster(imageGCHighThresholdPercent=10, imageGCLowThresholdPercent=50))


def test_a_feature_gate_that_kubelets_would_refuse_is_refused_first() -> None:
    for gates, said in (({"Frobnicate": True}, "unrecognized feature gate"), ({"NodeSwap": False}, "locked to true")):
        with pytest.raises(Invalid, match=said):
            plan.check_kubelets(Cluster("lab", "10.89.3.0/24", Options(custom=Custom(feature_gates=gates))))
    plan.check_kubelets(Cluster("lab", "10.89.3.0/24", Options(custom=Custom(feature_gates={"NodeSwap": True}))))


def test_a_record_of_a_cluster_keeps_all_of_it() -> None:
    custom = Custom(ports=(Port(80, 30080, "::1", "gpu1"),), api_server={"v": "1"}, kubelet={"maxPods": 3})
    options = Options(nodes=2, members=(HEAD, GPU), custom=custom)
    cluster = Cluster("lab", "10.89.3.0/24", options, pod_cidr6="fd00:60::/56", images="conformance")
    assert Cluster.from_json(cluster.to_json()) == cluster
    old = {name: value for name, value in cluster.to_json().items() if name not in ("images", "pod_cidr6")}
    del old["options"]["members"], old["options"]["custom"]
    assert [one.name for one in Cluster.from_json(old).nodes] == ["node1", "node2"]


def test_a_file_does_not_move_a_node_to_the_address_of_one_that_was_removed() -> None:
    known = Options(nodes=2, members=(HEAD, Member("late", 3)))
    asked = Options(nodes=3, members=(Member("head"), Member("late"), Member("new")))
    assert names(plan.merge("lab", known, asked, {"nodes", "members"})) == [("head", 1), ("late", 3), ("new", 2)]
