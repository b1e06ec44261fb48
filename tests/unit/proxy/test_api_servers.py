"""What is sent to an API server goes there, whatever Services ask for."""

from __future__ import annotations

from nodelib.firewall.objects import Family
from nodelib.json_values import Json
from proxy.plan.tracker import Tracker
from tests.builders.services import endpoint_slice, service
from tests.unit.proxy.build import HERE

PORTS = [{"name": "api", "port": 6443}, {"name": "web", "port": 80}, {"name": "udp", "port": 6443, "protocol": "UDP"}]


def api_server(*addresses: str) -> tuple[Json, Json]:
    ports = [{"name": "https", "port": 6443, "protocol": "TCP"}]
    made = service("kubernetes", "172.30.0.1", ports=[{"name": "https", "port": 443}])
    listed = endpoint_slice("kubernetes", list(addresses), ports=ports)
    for one in (made, listed):
        one["metadata"]["namespace"] = "default"
    return made, listed


def taking_over() -> Json:
    status = {"loadBalancer": {"ingress": [{"ip": "192.0.2.11"}]}}
    return service("a", "172.30.0.2", ports=PORTS, externalIPs=["192.0.2.11", "192.0.2.12"]) | {"status": status}


def outer(one: Tracker) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    ports = one.take().desired.ports.items()
    return {name.port: (port.external_ips, port.load_balancer_ips) for name, port in ports if name.service.name == "a"}


def test_no_service_has_the_address_and_the_port_of_an_api_server() -> None:
    """All nodes lost the API server: their kubelets and proxies connect to it behind the same rules."""
    one = Tracker(Family.IPV4, HERE, 0.0)
    one.service(taking_over())
    for number, obj in enumerate(api_server("192.0.2.11")):
        (one.endpoint_slice if number else one.service)(obj)
    assert outer(one) == {
        "api": (("192.0.2.12",), ()),
        "web": (("192.0.2.11", "192.0.2.12"), ("192.0.2.11",)),
        "udp": (("192.0.2.11", "192.0.2.12"), ("192.0.2.11",)),
    }


def test_an_api_server_that_comes_takes_it_back_and_keeps_it_while_it_is_away() -> None:
    """Each takes its address from the Service when it stops: nodes that know no other one had lost it for good then."""
    one = Tracker(Family.IPV4, HERE, 0.0)
    one.service(taking_over())
    assert outer(one)["api"] == (("192.0.2.11", "192.0.2.12"), ("192.0.2.11",))
    one.endpoint_slice(api_server("192.0.2.11", "192.0.2.12")[1])
    one.take(some=True)
    assert outer(one)["api"] == ((), ())
    one.endpoint_slice(api_server("192.0.2.12")[1])
    one.take(some=True)
    assert outer(one)["api"] == ((), ())
    one.endpoint_slice(api_server()[1])
    one.take(some=True)
    assert outer(one)["api"] == ((), ())


def test_of_those_that_went_the_last_ones_are_kept() -> None:
    one = Tracker(Family.IPV4, HERE, 0.0)
    one.service(taking_over())
    one.endpoint_slice(api_server("192.0.2.11")[1])
    one.take()
    for number in range(100):
        one.endpoint_slice(api_server(f"198.51.100.{number}", "192.0.2.12")[1])
        one.take()
    one.take()
    assert outer(one)["api"] == (("192.0.2.11",), ("192.0.2.11",))


def test_who_calls_a_service_kubernetes_elsewhere_takes_nothing_away() -> None:
    one = Tracker(Family.IPV4, HERE, 0.0)
    one.service(taking_over())
    listed = api_server("192.0.2.12")[1]
    listed["metadata"]["namespace"] = "ns"
    one.endpoint_slice(listed)
    one.take()
    assert outer(one)["api"][0] == ("192.0.2.11", "192.0.2.12")
