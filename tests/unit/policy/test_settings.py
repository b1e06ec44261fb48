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
