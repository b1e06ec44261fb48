"""The address by which this machine asks for addresses of Services, and what is left of it in the end: nothing."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest

from controlplane.cluster.model import Cluster, Options
from controlplane.suites.plan.outside import CLIENT, commands


def cluster(**options: object) -> Cluster:
    return Cluster("lab", "10.89.3.0/24", Options(**options))  # type: ignore[arg-type]


def test_it_is_used_for_the_pool_only_and_is_not_of_the_nodes_network() -> None:
    made, _ = commands(cluster())
    ways = [ip_network(argv[3]) for argv in made if argv[1] == "route"]
    assert {one for way in ways for one in way} == set(
        map(ip_address, range(int(ip_address("10.89.3.192")), int(ip_address("10.89.3.255"))))
    )
    assert all(argv[-4:] == ("dev", "nw-lab", "src", CLIENT) for argv in made if argv[1] == "route")
    assert ip_address(CLIENT) not in ip_network("10.89.0.0/16")


@pytest.mark.parametrize("options", [{}, {"load_balancer_pool": "10.89.3.200-10.89.3.203"}, {"ip_family": "dual"}])
def test_everything_that_is_made_is_removed(options: dict[str, object]) -> None:
    made, ended = commands(cluster(**options))
    assert made and {argv[1:2] + argv[3:4] for argv in made} == {argv[1:2] + argv[3:4] for argv in ended}


@pytest.mark.parametrize("options", [{"load_balancer": False}, {"uplink": False}, {"routed": True}])
def test_without_addresses_or_a_way_back_nothing_is_made(options: dict[str, object]) -> None:
    assert commands(cluster(**options)) == ([], [])
