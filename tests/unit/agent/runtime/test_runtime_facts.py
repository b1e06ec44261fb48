"""What the runtime says of itself, as the Node's status needs it."""

from __future__ import annotations

import pytest

from agent.runtime.model import RuntimeFacts, RuntimeHandler
from agent.runtime.plan import runtime_facts, runtime_silent
from nodelib.json_values import Json

RUNTIME = RuntimeFacts("containerd", "2.4.2", (RuntimeHandler("runc", True, True),), True, ())


NOT_READY = {
    "type": "NetworkReady",
    "status": False,
    "reason": "NetworkPluginNotReady",
    "message": "Network plugin returns error: cni plugin not initialized",
}


def test_runtime_facts_say_what_the_runtime_says() -> None:
    answer = {
        "status": {"conditions": [{"type": "RuntimeReady", "status": True}, NOT_READY]},
        "runtime_handlers": [{"name": "runc", "features": {"user_namespaces": True}}, {"name": "", "features": {}}],
        "features": {"supplemental_groups_policy": True},
    }
    found = runtime_facts(answer, {"runtime_name": "containerd", "runtime_version": "v2.4.2"})
    assert found.problems == (
        "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady "
        "message:Network plugin returns error: cni plugin not initialized",
    )
    assert (found.name, found.version, found.supplemental_groups_policy) == ("containerd", "2.4.2", True)
    assert [handler.name for handler in found.handlers] == ["", "runc"]


@pytest.mark.parametrize("answer", [{}, {"status": {}}, {"status": {"conditions": []}}])
def test_a_runtime_without_conditions_is_not_ready(answer: Json) -> None:
    assert len(runtime_facts(answer, {}).problems) == 2


def test_a_runtime_that_is_silent_is_down_after_half_a_minute() -> None:
    assert runtime_silent(RUNTIME, 29.9, "no answer") is RUNTIME
    down = runtime_silent(RUNTIME, 30.0, "no answer")
    assert (down.name, down.problems) == ("containerd", ("container runtime is down: no answer",))
    assert not runtime_silent(RuntimeFacts(), None, "no answer").problems[0].startswith("container runtime is down")
