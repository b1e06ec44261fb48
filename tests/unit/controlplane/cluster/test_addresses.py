"""Names and subnets that a cluster may have."""

from __future__ import annotations

import ipaddress

import pytest

from controlplane.cluster.plan.addresses import check_name, check_subnet, choose_subnet, parse_networks
from nodelib.errors import Invalid, Permanent


def nets(*texts: str) -> tuple[ipaddress.IPv4Network, ...]:
    return tuple(ipaddress.IPv4Network(text) for text in texts)


@pytest.mark.parametrize("name", ["a", "lab", "nodewright", "t-1", "a23456789012"])
def test_good_names(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", "A", "1a", "-a", "a-", "a_b", "a234567890123", "a/b", "..", "wire\n"])
def test_bad_names_are_refused(name: str) -> None:
    with pytest.raises(Invalid):
        check_name(name)


@pytest.mark.parametrize(
    ("taken", "chosen"),
    [
        pytest.param((), "10.89.0.0/24", id="nothing taken"),
        pytest.param(("10.89.0.0/24", "10.89.1.0/24"), "10.89.2.0/24", id="first two taken"),
        pytest.param(("10.89.0.7/32",), "10.89.1.0/24", id="a single address inside"),
        pytest.param(("10.89.0.0/17",), "10.89.128.0/24", id="a wider route over it"),
        pytest.param(("192.168.0.0/16", "172.17.0.0/16"), "10.89.0.0/24", id="others do not matter"),
    ],
)
def test_choose_subnet(taken: tuple[str, ...], chosen: str) -> None:
    assert choose_subnet(nets(*taken)) == chosen


def test_no_subnet_left_says_what_to_do() -> None:
    with pytest.raises(Permanent, match="--subnet"):
        choose_subnet(nets("10.0.0.0/8"))


def test_default_routes_and_other_families_do_not_count() -> None:
    assert parse_networks(["0.0.0.0/0", "fe80::1/64", "10.1.2.3/24"]) == nets("10.1.2.0/24")


@pytest.mark.parametrize(
    ("text", "taken", "words"),
    [
        pytest.param("10.89.7.0/24", ("10.89.7.128/25",), "overlaps 10.89.7.128/25", id="in use"),
        pytest.param("10.96.1.0/24", (), "overlaps 10.96.0.0/16", id="the services' range"),
        pytest.param("10.89.7.1/24", (), "host bits", id="an address, no network"),
        pytest.param("nonsense", (), "--subnet nonsense", id="no network at all"),
        pytest.param("10.0.0.0/8", (), "outside /16 to /27", id="too wide"),
        pytest.param("10.89.7.0/29", (), "outside /16 to /27", id="too narrow"),
    ],
)
def test_a_bad_subnet_is_refused(text: str, taken: tuple[str, ...], words: str) -> None:
    with pytest.raises(Invalid, match=words):
        check_subnet(text, nets(*taken), ("10.244.0.0/16", "10.96.0.0/16"))


def test_a_good_subnet_is_kept() -> None:
    assert check_subnet("172.30.5.0/24", nets("10.0.0.0/8"), ()) == "172.30.5.0/24"
