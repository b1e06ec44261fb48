"""hostPorts that are ports of the node itself."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from cni.model import Listener, PortMapping
from cni.plan.hostports import of_the_node

LISTENERS = [
    Listener("tcp", ip_address("::"), 10250),
    Listener("tcp", ip_address("0.0.0.0"), 22),
    Listener("tcp", ip_address("127.0.0.1"), 10248),
    Listener("tcp", ip_address("10.89.0.11"), 2380),
    Listener("udp", ip_address("0.0.0.0"), 4789),
    Listener("udp", ip_address("0.0.0.0"), 40000),
]


@pytest.mark.parametrize(
    ("port", "protocol", "host_ip", "taken"),
    [
        pytest.param(10250, "tcp", "", True, id="of both families"),
        pytest.param(10250, "tcp", "10.89.0.11", True, id="of both families, one address"),
        pytest.param(10250, "udp", "", False, id="another protocol"),
        pytest.param(22, "tcp", "10.89.0.11", True, id="every address"),
        pytest.param(22, "tcp", "fd00::1", False, id="every address of the other family"),
        pytest.param(10248, "tcp", "", True, id="loopback, and the pod wants every address"),
        pytest.param(10248, "tcp", "127.0.0.1", True, id="loopback"),
        pytest.param(10248, "tcp", "10.89.0.11", False, id="loopback, and the pod wants another"),
        pytest.param(2380, "tcp", "10.89.0.12", False, id="another address"),
        pytest.param(4789, "udp", "", True, id="the overlay"),
        pytest.param(40000, "udp", "", False, id="a client of a name server"),
        pytest.param(8080, "tcp", "", False, id="nobody"),
    ],
)
def test_what_listens_on_the_node_is_the_nodes(port: int, protocol: str, host_ip: str, taken: bool) -> None:
    found = of_the_node([PortMapping(port, 80, protocol, host_ip)], LISTENERS, (32768, 60999))
    assert bool(found) is taken
    if taken:
        assert f":{port}/{protocol} is the node's own" in found[0]
