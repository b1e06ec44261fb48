"""The pool of a cluster, and what runs on its nodes."""

from __future__ import annotations

import pytest

from controlplane.cluster.model import Cluster, Options
from controlplane.cluster.plan import certificates, components, load_balancer, manifests
from controlplane.cluster.plan.components import Tools


def cluster(subnet: str = "10.89.3.0/24", **options: object) -> Cluster:
    return Cluster("lab", subnet, Options(load_balancer=True, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("subnet", "options", "pool"),
    [
        pytest.param("10.89.3.0/24", {}, "10.89.3.192-10.89.3.254", id="last-quarter"),
        pytest.param("10.89.3.0/26", {"nodes": 20}, "10.89.3.48-10.89.3.62", id="beside-20-nodes"),
        pytest.param("10.89.3.0/27", {"nodes": 16}, "10.89.3.27-10.89.3.30", id="what-the-nodes-leave"),
        pytest.param("10.89.0.0/16", {}, "10.89.192.0-10.89.195.231", id="not-too-many"),
        pytest.param("10.89.3.0/24", {"ip_family": "ipv6"}, "fd00:a59:300::1000-fd00:a59:300::1fff", id="ipv6"),
        pytest.param(
            "10.89.3.0/24",
            {"ip_family": "dual"},
            "10.89.3.192-10.89.3.254,fd00:a59:300::1000-fd00:a59:300::1fff",
            id="dual",
        ),
        pytest.param("10.89.3.0/24", {"load_balancer_pool": "10.89.3.200/30"}, "10.89.3.201-10.89.3.202", id="asked"),
    ],
)
def test_pool(subnet: str, options: dict[str, object], pool: str) -> None:
    one = cluster(subnet, **options)
    assert load_balancer.problem(one) == ""
    assert str(load_balancer.pool(one)) == pool
    mine = {address for node in one.nodes for address in node.addresses} | {*one.host_addresses, *one.router_addresses}
    assert not any(address in mine for address in map(str, _first(load_balancer.pool(one))))


def _first(pool: object) -> list[object]:
    from itertools import islice

    return [one for family in (4, 6) for one in islice(pool.addresses(family), 100)]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("pool", "said"),
    [
        ("192.0.2.1", "not in the nodes' subnet"),
        ("10.89.3.254-10.89.4.1", "not in the nodes' subnet"),
        ("10.89.3.10-10.89.3.11", "an address of the cluster itself"),
        ("10.89.3.1", "an address of the cluster itself"),
        ("10.89.3.250-10.89.3.255", "broadcast"),
        ("fd00:a59:300::1000", "not in the nodes' subnet"),
        ("x", "not a range"),
    ],
)
def test_a_pool_that_nobody_would_find_is_refused(pool: str, said: str) -> None:
    assert said in load_balancer.problem(cluster(load_balancer_pool=pool))


def test_a_subnet_without_room_is_refused_and_without_the_option_it_is_not() -> None:
    assert "no room" in load_balancer.problem(cluster("10.89.3.0/27", nodes=20))
    assert not load_balancer.problem(Cluster("lab", "10.89.3.0/27", Options(nodes=20, load_balancer=False)))


def test_the_daemon_has_a_certificate_a_kubeconfig_and_rights() -> None:
    one = cluster()
    own = f"{one.node_dir('node1')}/kubernetes"
    assert f"{own}/pki/loadbalancer-client" in {item.path for item in certificates.certificates(one)}
    assert f"{own}/loadbalancer.conf" in {item.path for item in certificates.kubeconfigs(one)}
    program = components.load_balancer(one, one.nodes[0], Tools({}, "/venv/python", "/project"))
    assert "--pool=10.89.3.192-10.89.3.254" in program.argv and "--interface=eth0" in program.argv
    for obj in load_balancer.objects():
        assert manifests.path_of(obj).endswith(obj["metadata"]["name"])
    assert all(
        subject["name"] == certificates.BALANCER_USER
        for obj in load_balancer.objects()
        for subject in obj.get("subjects", ())
    )


@pytest.mark.parametrize("options", [{"routed": True}, {"kubeadm": True}], ids=str)
def test_where_nodes_share_no_link_of_ours_it_does_not_run(options: dict[str, object]) -> None:
    one = cluster(**options)  # type: ignore[arg-type]
    assert not one.options.gives_addresses
    assert not any("loadbalancer" in item.path for item in certificates.certificates(one))
