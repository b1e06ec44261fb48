"""What pods ask for, of very many resources: whoever may create pods names any he likes, in amounts of 0."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from agent.admission.plan.admit import NodeView, refusal
from agent.admission.plan.preempt import victims_of
from agent.common.model.pods import Pod
from agent.common.plan import demand
from agent.eviction.model import Candidate
from agent.eviction.plan import local_storage, ranking, signals
from agent.resources.plan import allocation, cgroups, memory_qos
from nodelib.json_values import Json
from tests.builders.pods import container, pod

NODE = NodeView(name="n1", allocatable={"cpu": "2", "memory": "4Gi", "pods": "110"})
KEEPING = memory_qos.MemoryQos(reserves=True)


def greedy(resources: int, **init: Any) -> Json:
    """A container that asks for so many resources that no node knows."""
    asked = {f"a.example/r{number}": "0" for number in range(resources)}
    return container("greedy", resources={"requests": {**asked, "cpu": "1m"}, "limits": asked}, **init)


def test_sidecars_and_init_containers_are_added_up_once() -> None:
    """A pod of 1 MB took 15 s each time that it was looked at, by whatever pod came after it."""
    inits = [greedy(10_000, restartPolicy="Always"), *(container(f"i{number}") for number in range(5000))]
    who = pod(container(), initContainers=inits)
    began = time.process_time()
    found = demand.pod_requests(who)
    demand.pod_limits(who)
    assert time.process_time() - began < 2
    assert len(found) == 10_001


OTHERS = [pod(greedy(15_000), meta={"name": f"p{number}", "uid": f"u{number}"}) for number in range(40)]


def _preempted() -> object:
    lacking = {"memory": demand.ZERO + 1, "cpu": demand.ZERO + 1}
    return victims_of(pod(container(), priority=2_000_000_000), OTHERS, lacking)


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(lambda: refusal(pod(container()), OTHERS, NODE), id="admission"),
        pytest.param(lambda: refusal(OTHERS[0], OTHERS[1:], NODE), id="admission of such a pod"),
        pytest.param(_preempted, id="preemption"),
        pytest.param(lambda: [local_storage.limits_of(one) for one in OTHERS], id="limits of storage"),
        pytest.param(
            lambda: [
                ranking.ranked([Candidate(one, None)], signals.MEMORY_AVAILABLE, image_fs=False) for one in OTHERS
            ],
            id="evictions",
        ),
        pytest.param(lambda: cgroups.limits_of_qos(OTHERS, (), memory_qos.Kept()), id="cgroups of classes"),
        pytest.param(lambda: memory_qos.kept(OTHERS, KEEPING), id="memory that is kept"),
        pytest.param(lambda: [allocation.shrank(one, one) for one in OTHERS], id="resizes"),
    ],
)
def test_what_is_worked_out_for_all_pods_of_a_node(work: Callable[[], object]) -> None:
    """Forty pods of 490 KB took each of these 2 to 4 s of the event loop."""
    began = time.process_time()
    work()
    assert time.process_time() - began < 0.5


def subject(*inits: Json) -> Pod:
    return pod(container(resources={"requests": {"cpu": "1"}}), initContainers=list(inits))


def one(name: str, cpu: str, **rest: Any) -> Json:
    return container(name, resources={"requests": {"cpu": cpu}}, **rest)


@pytest.mark.parametrize(
    ("inits", "cores"),
    [
        pytest.param([one("i", "3"), one("s", "2", restartPolicy="Always")], 3, id="before the sidecar"),
        pytest.param([one("s", "2", restartPolicy="Always"), one("i", "3")], 5, id="beside the sidecar"),
        pytest.param([one("s", "2", restartPolicy="Always"), container("i")], 3, id="with the main container"),
        pytest.param(
            [one("s", "2", restartPolicy="Always"), one("i", "3"), one("t", "2", restartPolicy="Always")],
            5,
            id="between sidecars",
        ),
    ],
)
def test_the_peak_of_the_init_phase(inits: list[Json], cores: int) -> None:
    assert demand.pod_requests(subject(*inits))["cpu"] == cores
    assert demand.pod_requests(subject(*inits), only=("cpu", "memory")) == {"cpu": cores}


CROWDS = [
    pod(
        *(container(f"c{one}", resources={"requests": {"memory": "1"}}) for one in range(8000)),
        meta={"name": f"p{number}", "uid": f"u{number}"},
    )
    for number in range(10)
]


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(
            lambda: refusal(pod(container(resources={"requests": {"memory": "1"}})), CROWDS, NODE), id="admission"
        ),
        pytest.param(
            lambda: refusal(pod(container(ports=[{"containerPort": 1, "hostPort": 1}])), CROWDS, NODE), id="ports"
        ),
        pytest.param(lambda: cgroups.limits_of_qos(CROWDS, (), memory_qos.Kept()), id="cgroups of classes"),
        pytest.param(lambda: memory_qos.kept(CROWDS, KEEPING), id="memory that is kept"),
    ],
)
def test_containers_of_all_pods_are_gone_through_once(work: Callable[[], object]) -> None:
    """Not for each pod that comes or goes: ten pods of 15,000 containers took each of these 0.2 to 0.4 s."""
    work()
    began = time.process_time()
    for _ in range(10):
        work()
    assert time.process_time() - began < 0.2
