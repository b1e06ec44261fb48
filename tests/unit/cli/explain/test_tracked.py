"""A tracked connection to a Service, as `service` prints it, from lines of conntrack -L."""

from __future__ import annotations

import pytest

from cli.explain import service_text
from cli.explain.facts import Facts
from tests.builders.pods import container, pod_json
from tests.builders.services import node, service


def pod(name: str, ip: str) -> dict[str, object]:
    return pod_json(name, container("c"), meta={"namespace": "ns"}, status={"phase": "Running", "podIP": ip})


FACTS = Facts.of(
    [service("web", "10.96.0.7")],
    [],
    [pod("client", "10.244.0.5"), pod("web-0", "10.244.1.3"), pod("web-1", "fd00:1::3")],
    [node("node1", address="10.89.0.11")],
)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        pytest.param(
            "tcp      6 431999 ESTABLISHED src=10.244.0.5 dst=10.96.0.7 sport=40000 dport=80 "
            "src=10.244.1.3 dst=10.244.0.5 sport=8080 dport=40000 [ASSURED] mark=0 use=1",
            "10.244.0.5:40000 (pod ns/client) -> 10.96.0.7:80 -> 10.244.1.3:8080 (pod ns/web-0), TCP, ESTABLISHED",
            id="TCP",
        ),
        pytest.param(
            "tcp      6 119 TIME_WAIT src=10.244.0.5 dst=10.96.0.7 sport=4 dport=80 packets=6 bytes=401 "
            "src=10.244.1.3 dst=10.244.0.5 sport=8080 dport=4 packets=1 bytes=523 [ASSURED] mark=0 use=1",
            "10.244.0.5:4 (pod ns/client) -> 10.96.0.7:80 -> 10.244.1.3:8080 (pod ns/web-0), TCP, TIME_WAIT, "
            "6 packets with 401 bytes there, 1 packet with 523 bytes back",
            id="counted",
        ),
        pytest.param(
            "tcp      6 118 SYN_SENT src=10.89.0.11 dst=10.96.0.7 sport=4 dport=80 [UNREPLIED] "
            "src=10.244.1.3 dst=10.244.0.1 sport=8080 dport=1024 mark=0 use=1",
            "10.89.0.11:4 (node node1), masqueraded as 10.244.0.1:1024 -> 10.96.0.7:80 -> "
            "10.244.1.3:8080 (pod ns/web-0), TCP, SYN_SENT, not answered",
            id="masqueraded, without an answer",
        ),
        pytest.param(
            "udp      17 29 src=10.244.0.5 dst=10.96.0.7 sport=4 dport=53 "
            "src=10.244.1.3 dst=10.244.0.5 sport=53 dport=4 mark=0 use=1",
            "10.244.0.5:4 (pod ns/client) -> 10.96.0.7:53 -> 10.244.1.3:53 (pod ns/web-0), UDP, answered",
            id="UDP",
        ),
        pytest.param(
            "udp      17 29 src=10.244.0.5 dst=10.96.0.7 sport=4 dport=53 [UNREPLIED] "
            "src=10.96.0.7 dst=10.244.0.5 sport=53 dport=4 mark=0 use=1",
            "10.244.0.5:4 (pod ns/client) -> 10.96.0.7:53 -> no endpoint, UDP, not answered",
            id="UDP, not translated",
        ),
        pytest.param(
            "icmp     1 29 src=10.244.0.5 dst=10.96.0.7 type=8 code=0 id=12 "
            "src=10.96.0.7 dst=10.244.0.5 type=0 code=0 id=12 mark=0 use=1",
            "10.244.0.5 (pod ns/client) -> 10.96.0.7 -> no endpoint, ICMP, answered",
            id="without ports",
        ),
        pytest.param(
            "tcp      6 431999 ESTABLISHED src=fd00:2::5 dst=fd00:9::7 sport=4 dport=80 "
            "src=fd00:1::3 dst=fd00:2::5 sport=8080 dport=4 [ASSURED] mark=0 use=1",
            "[fd00:2::5]:4 -> [fd00:9::7]:80 -> [fd00:1::3]:8080 (pod ns/web-1), TCP, ESTABLISHED",
            id="IPv6",
        ),
        pytest.param("something else: src=10.244.0.5", "something else: src=10.244.0.5", id="not understood"),
        pytest.param("tcp src=1 dst=2 sport=x src=3 dst=4", "tcp src=1 dst=2 sport=x src=3 dst=4", id="odd"),
    ],
)
def test_a_connection_as_a_person_would_say_it(line: str, said: str) -> None:
    _, counted, shown = service_text.connections({"node1": [line], "node2": []}, FACTS)
    assert counted == "Tracked connections: node1 1, node2 0"
    assert shown == f"  node1: {said}"


def test_the_first_ten_are_shown() -> None:
    line = "udp 17 29 src=10.0.0.1 dst=10.96.0.7 sport=4 dport=53 src=10.0.0.2 dst=10.0.0.1 sport=53 dport=4"
    shown = list(service_text.connections({"node1": [line] * 12}, FACTS))
    assert len(shown) == 13 and shown[-1] == "  node1: and 2 more"
