"""Which containers are restarted: podutil.ContainerShouldRestart."""

from __future__ import annotations

import pytest

from agent.common.model.pods import Kind
from agent.common.plan.restart import is_sidecar, may_restart, restarts
from nodelib.json_values import Json
from tests.builders.pods import container, pod


def rule(action: str, operator: str, *values: int) -> Json:
    return {"action": action, "exitCodes": {"operator": operator, "values": list(values)}}


@pytest.mark.parametrize("code", [0, 3])
@pytest.mark.parametrize("of_pod", ["Always", "OnFailure", "Never"])
@pytest.mark.parametrize("own", ["", "Always", "OnFailure", "Never"])
def test_a_containers_own_policy_stands_above_its_pods(own: str, of_pod: str, code: int) -> None:
    box = container(restartPolicy=own) if own else container()
    wanted = {"Always": True, "OnFailure": code != 0, "Never": False}[own or of_pod]
    assert restarts(pod(box, restartPolicy=of_pod), box, code) is wanted
    assert may_restart(pod(box, restartPolicy=of_pod), box) is ((own or of_pod) != "Never")


@pytest.mark.parametrize(
    ("code", "rules", "wanted"),
    [
        pytest.param(42, [rule("Restart", "In", 42, 43)], True, id="in"),
        pytest.param(1, [rule("Restart", "In", 42, 43)], False, id="not-in-the-values"),
        pytest.param(42, [rule("Restart", "NotIn", 42)], False, id="notin-of-a-value"),
        pytest.param(1, [rule("Restart", "NotIn", 42)], True, id="notin"),
        pytest.param(42, [rule("RestartAllContainers", "In", 42)], True, id="restart-all"),
        pytest.param(42, [rule("Later", "In", 42), rule("Restart", "In", 42)], False, id="the-first-that-fits-decides"),
        pytest.param(42, [], False, id="no-rules"),
    ],
)
def test_rules_stand_above_the_policy(code: int, rules: list[Json], wanted: bool) -> None:
    box = container(restartPolicy="Never", restartPolicyRules=rules)
    assert restarts(pod(box, restartPolicy="Always"), box, code) is wanted


def test_rules_count_only_beside_an_own_policy() -> None:
    box = container(restartPolicyRules=[rule("Restart", "In", 42)])
    assert restarts(pod(box, restartPolicy="Never"), box, 42) is False


@pytest.mark.parametrize(
    ("kind", "own", "wanted"),
    [(Kind.INIT, "Always", True), (Kind.INIT, "Never", False), (Kind.MAIN, "Always", False)],
)
def test_a_sidecar_is_an_init_container_that_always_restarts(kind: Kind, own: str, wanted: bool) -> None:
    assert is_sidecar(kind, container(restartPolicy=own)) is wanted
