"""What an agent keeps of the Services of all namespaces."""

from __future__ import annotations

import json
import tracemalloc

import pytest

from agent.containers.plan.env import service_variables
from agent.volumes.plan.services import slim
from nodelib.errors import Invalid
from nodelib.json_values import Json
from tests.builders.services import service


def made(name: str, ports: int, labels: int = 0) -> Json:
    entries = [
        {"name": f"p{port}", "port": port, "protocol": "TCP", "targetPort": port} for port in range(1, ports + 1)
    ]
    one = service(name, "10.96.0.9", namespace="ns", ports=entries, selector={"app": name})
    one["metadata"] |= {"resourceVersion": "7", "labels": {f"l{number}": "x" * 60 for number in range(labels)}}
    found: Json = json.loads(json.dumps(one))
    return found


@pytest.mark.parametrize("ports", [1, 16, 17, 300])
def test_the_variables_are_those_of_the_whole_service(ports: int) -> None:
    whole, kept = made("web", ports), made("web", ports)
    slim(kept)
    assert service_variables([kept], "ns", True) == service_variables([whole], "ns", True) != {}
    assert kept["metadata"] == {"name": "web", "namespace": "ns", "resourceVersion": "7"}


def test_so_many_ports_that_no_container_starts() -> None:
    kept = made("web", 20_000)
    slim(kept)
    with pytest.raises(Invalid, match="set enableServiceLinks to false"):
        service_variables([kept], "ns", True)
    assert service_variables([kept], "ns", False) == {}


def test_a_service_without_ports_or_address() -> None:
    for spec in ({}, {"clusterIP": "None"}, {"clusterIP": "10.96.0.9", "ports": None}, {"ports": "x"}):
        one: Json = {"metadata": {"name": "a", "namespace": "ns"}, "spec": spec}
        slim(one)
        assert service_variables([one], "ns", True) == {}


def test_services_of_a_megabyte_take_little() -> None:
    """12 MB of every agent for each with 20,000 ports."""
    tracemalloc.start()
    kept = []
    for number in range(10):
        one = made(f"s{number}", 20_000, labels=1000)
        slim(one)
        kept.append(one)
    del one
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 5 << 20, f"{size >> 20} MiB for 10 Services"
