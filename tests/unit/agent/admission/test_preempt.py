"""Which pods a critical one preempts: the cases of upstream's preemption_test.go."""

from __future__ import annotations

from typing import Any

import pytest

from agent.admission.plan.admit import NodeView
from agent.admission.plan.preempt import MESSAGE, admission
from agent.common.model.pods import Pod
from tests.builders.pods import container, pod

NODE = NodeView(name="n1", allocatable={"cpu": "1", "memory": "1000", "pods": "4"})


def named(name: str, cpu: str = "", memory: str = "", *, limits: bool = False, source: str = "api", **spec: Any) -> Pod:
    asked = {key: value for key, value in (("cpu", cpu), ("memory", memory)) if value}
    resources = {"requests": asked, "limits": asked} if limits else {"requests": asked}
    return pod(container(resources=resources), meta={"name": name, "uid": name}, source=source, **spec)


def names(found: object) -> list[str]:
    return [one.pod.name for one in found]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("wanted", "others", "victims"),
    [
        pytest.param(named("s", "100m", source="file"), [named("a", "500m")], [], id="there is room"),
        pytest.param(named("s", "600m", source="file"), [named("a", "500m")], ["a"], id="a static pod is critical"),
        pytest.param(
            named("s", "300m", source="file"),
            [named("big", "600m"), named("small", "300m")],
            ["small"],
            id="the smallest that is enough",
        ),
        pytest.param(
            named("s", "300m", source="file"),
            [named("guaranteed", "300m", "10", limits=True), named("burstable", "600m")],
            ["burstable"],
            id="burstable before guaranteed",
        ),
        pytest.param(
            named("s", source="file"),
            [named("tiny", "1m"), named("besteffort"), named("b", "10m"), named("c", "10m")],
            ["besteffort"],
            id="best effort before burstable",
        ),
        pytest.param(
            named("s", "900m", source="file"),
            [named("a", "300m"), named("b", "300m"), named("c", "300m")],
            ["a", "b", "c"],
            id="as many as it takes",
        ),
        pytest.param(
            named("s", source="file"), [named(name) for name in "abcd"], ["a"], id="one place among too many pods"
        ),
        pytest.param(
            named("s", "600m", priority=2_000_001_000),
            [named("critical", "300m", priority=2_000_000_000), named("plain", "400m", priority=5)],
            ["critical"],
            id="a lesser critical one too, as upstream chooses by size only",
        ),
    ],
)
def test_victims(wanted: Pod, others: list[Pod], victims: list[str]) -> None:
    refused, evictions = admission(wanted, others, NODE)
    assert refused is None
    assert names(evictions) == victims
    assert all((one.reason, one.message, one.disrupted) == ("Preempting", MESSAGE, True) for one in evictions)


def test_a_pod_that_is_not_critical_preempts_nothing() -> None:
    refused, evictions = admission(named("p", "600m"), [named("a", "500m")], NODE)
    assert refused is not None and refused.reason == "OutOfcpu" and not evictions


def test_critical_pods_do_not_preempt_each_other() -> None:
    refused, evictions = admission(named("s", "600m", source="file"), [named("t", "500m", source="file")], NODE)
    assert refused is not None and refused.reason == "UnexpectedAdmissionError" and not evictions
    assert "no set of running pods found to reclaim resources: [(res: cpu, q: 100), ]" in refused.message


def test_other_reasons_come_first_and_it_preempts_nothing() -> None:
    wanted = named("s", "600m", source="file")
    wanted.spec["nodeSelector"] = {"disk": "ssd"}
    refused, evictions = admission(wanted, [named("a", "500m")], NODE)
    assert refused is not None and refused.reason == "NodeAffinity" and not evictions
