"""The stage that upstream's metrics count a pod in, from its worker's memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.common.model.pods import Pod, PodStage
from agent.pods.model.facts import Cause, Termination
from agent.pods.work.memory import PodMemory
from agent.pods.work.pod_stages import stages
from agent.pods.work.timeline import Timeline
from tests.builders.pods import pod as make_pod
from tests.fakes.clock import FakeClock

_EVICTED = Termination(Cause.EVICTED, 0.0, 1, "Evicted", "")


def _memory(source: str, **known: object) -> PodMemory:
    pod: Pod = replace(make_pod(), source=source)
    memory = PodMemory(pod, pod, Timeline(FakeClock()))
    for name, value in known.items():
        setattr(memory, name, value)
    return memory


@pytest.mark.parametrize(
    ("memory", "wanted"),
    [
        (_memory("api"), PodStage("sync", "desired", "", True)),
        (_memory("file", mirror_uid="m"), PodStage("sync", "desired", "true", True, True)),
        (_memory("file", mirror_uid="m", gone=True), PodStage("terminating", "orphan", "true", True, True)),
        (_memory("api", termination=_EVICTED), PodStage("terminating", "desired", "", True)),
        (_memory("api", released=True), PodStage("terminated", "desired", "", True)),
        (_memory("runtime", gone=True), PodStage("terminating", "runtime_only", "unknown", True)),
    ],
    ids=["runs", "static", "static, its manifest removed", "evicted", "released", "orphan of the runtime"],
)
def test_stage(memory: PodMemory, wanted: PodStage) -> None:
    assert list(stages([memory], {memory.pod.uid})) == [wanted]
    assert list(stages([memory], ())) == [replace(wanted, active=False)]
