"""The command line of the policy daemon."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from nodelib.errors import Invalid
from policy.settings import load_settings


@pytest.mark.parametrize(
    ("given", "servers"),
    [([], ()), (["--cluster-dns="], ()), (["--cluster-dns=10.96.0.10, fd00::a"], ("10.96.0.10", "fd00::a"))],
)
def test_the_dns_servers_of_the_cluster(given: list[str], servers: tuple[str, ...]) -> None:
    assert load_settings(["--kubeconfig=k", *given]).dns_servers == tuple(map(ip_address, servers))


def test_a_server_that_is_no_address_is_refused() -> None:
    with pytest.raises(Invalid, match=r"--cluster-dns dns\.example"):
        load_settings(["--kubeconfig=k", "--cluster-dns=dns.example"])


@pytest.mark.parametrize("given", ["10246", ":10246", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:٣", "127.0.0.1:-1"])
def test_an_address_to_listen_on_that_is_none_is_refused(given: str) -> None:
    with pytest.raises(Invalid, match=r"--bind-address .* is not ADDRESS:PORT"):
        load_settings(["--kubeconfig=k", f"--bind-address={given}"])


def test_an_address_to_listen_on_of_ipv6() -> None:
    found = load_settings(["--kubeconfig=k", "--bind-address=[::1]:0"])
    assert (found.address, found.port) == ("::1", 0)
