"""Chain names are upstream's: other programs, and a kube-proxy in our place, find the same chains."""

from __future__ import annotations

import pytest

from proxy.model import NamespacedName, ServicePort, ServicePortName
from proxy.plan.iptables.names import chain_names, endpoint_chain, is_service_chain


def port(service: str, name: str, protocol: str = "TCP") -> ServicePort:
    namespace, _, base = service.partition("/")
    return ServicePort(ServicePortName(NamespacedName(namespace, base), name, protocol), "172.30.0.1", 80)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("service", "name", "hashed", "endpoint", "endpoint_hash"),
    [
        ("ns1/svc1", "p80", "XPGD46QRK7WJZT7O", "10.180.0.1:80", "SXIVWICOYRO3J4NJ"),
        ("ns2/svc2", "p80", "GNZBNJ2PO5MGZ6GT", "10.180.0.2:80", "RS4RBKLTHTF2IUXJ"),
        ("ns3/svc3", "p80", "X27LE4BHSL4DOUIK", "10.180.0.3:80", "OYPFS5VJICHGATKP"),
        ("ns4/svc4", "p80", "4SW47YFZTEDKD3PK", "10.180.0.4:80", "UKSFD7AGPMPPLUHC"),
        ("ns5/svc5", "p80", "NUKIZ6OKUXPJNT4C", "10.180.0.3:80", "I77PXRDZVX7PMWMN"),
        ("default/kubernetes", "https", "NPX46M4PTMTKRN6Y", "10.89.77.11:6443", "PGYQGCDO5WFLFJI3"),
    ],
)
def test_hashes_are_those_of_upstream(service: str, name: str, hashed: str, endpoint: str, endpoint_hash: str) -> None:
    one = port(service, name)
    assert chain_names(one) == tuple(f"KUBE-{kind}-{hashed}" for kind in ("SVC", "SVL", "EXT", "FW"))
    assert endpoint_chain(one, endpoint) == f"KUBE-SEP-{endpoint_hash}"


def test_protocols_and_port_names_have_chains_of_their_own() -> None:
    ports = [port("ns/dns", "dns"), port("ns/dns", "dns", "UDP"), port("ns/dns", ""), port("ns/dns", "dns-tcp")]
    assert len({chain_names(one).cluster for one in ports}) == 4


def test_only_chains_of_services_are_taken_for_such() -> None:
    assert is_service_chain("KUBE-FW-X")
    assert not any(is_service_chain(name) for name in ("KUBE-SERVICES", "KUBE-FORWARD", "NODEWRIGHT-SVC-X", "INPUT"))
