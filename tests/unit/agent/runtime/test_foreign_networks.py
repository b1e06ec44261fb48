"""What CNI plugins that are not ours make of a pod's network, as the runtime shows it."""

from __future__ import annotations

from typing import Any

import pytest
from cri_api.v1 import api_pb2

from agent.runtime.edge import convert
from agent.runtime.plan import runtime_facts

pb: Any = api_pb2


@pytest.mark.parametrize(
    ("first", "more", "taken"),
    [
        pytest.param("10.1.0.2", ("fd00::2",), ("10.1.0.2", "fd00::2"), id="both families"),
        pytest.param("fd00::2", ("10.1.0.2",), ("fd00::2", "10.1.0.2"), id="IPv6 first"),
        pytest.param("10.1.0.2", ("10.2.0.2", "fd00::2", "10.3.0.2"), ("10.1.0.2", "fd00::2"), id="several"),
        pytest.param("10.1.0.2", ("10.2.0.2",) * 1000, ("10.1.0.2",), id="a thousand"),
        pytest.param("", (), (), id="none"),
        pytest.param("not yet", ("10.1.0.2",), ("10.1.0.2",), id="no address"),
        pytest.param("10.1.0.2\n10.1.0.3\tbank", (), (), id="a line of /etc/hosts"),
        pytest.param("fe80::1%eth0\n10.1.0.3\tbank", ("10.1.0.2",), ("10.1.0.2",), id="a zone"),
    ],
)
def test_addresses_of_a_sandbox(first: str, more: tuple[str, ...], taken: tuple[str, ...]) -> None:
    """With two of one family the API server refused the status for ever: the pod was never ready."""
    network = {"ip": first, "additional_ips": [{"ip": one} for one in more]}
    assert convert.sandbox_status(pb.PodSandboxStatus(id="s", network=network)).ips == taken


def test_a_plugin_that_says_megabytes_about_its_health() -> None:
    """It became the Node's condition, which the API server did not take: the node stayed Ready for the scheduler."""
    reason = {"type": "NetworkReady", "status": False, "reason": "NetworkPluginNotReady", "message": "x\n" * (1 << 20)}
    answer = {"status": {"conditions": [{"type": "RuntimeReady", "status": True}, reason]}}
    (problem,) = runtime_facts(answer, {}).problems
    assert len(problem) < 2048 and "\n" not in problem
    assert problem.startswith("container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady")
