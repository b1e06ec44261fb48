"""What cgroup v2 keeps for pods and where it slows them down: tables by upstream's formulas, and the tree's files."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from agent.resources.edge.cgroups import CgroupTree
from agent.resources.model import Limits
from agent.resources.plan import cgroups, node_allocatable
from agent.resources.plan.cgroups import Policy
from agent.resources.plan.container_limits import Machine, container_resources
from agent.resources.plan.memory_qos import MemoryQos
from agent.resources.work.cgroups import KubepodsTree
from nodelib.cgroups import Mounts
from nodelib.json_values import Json
from tests.builders.pods import pod
from tests.fakes.cgroup_files import FakeCgroupFiles
from tests.unit.agent.common.test_demand import asks

MIB = 1 << 20
TIERED = MemoryQos(reserves=True)
HALF = MemoryQos(throttling=0.5)
WHOLE = {"cpu": "1", "memory": "100Mi"}
NODE = {"cpu": Decimal(2), "memory": Decimal(1000 * MIB), "pid": Decimal(1000)}


def unified(container: Json, policy: MemoryQos, version: int = 2, **spec: Any) -> dict[str, str]:
    machine = Machine(memory=2000 * MIB, cgroup_version=version, allocatable=1000 * MIB, single_process_oom_kill=True)
    found = container_resources(pod(container, **spec), container, Policy(memory=policy), machine)
    files: dict[str, str] = found.get("unified", {})
    return files


@pytest.mark.parametrize(
    ("container", "expect"),
    [
        pytest.param(asks(requests=WHOLE, limits=WHOLE), {"memory.min": str(100 * MIB)}, id="guaranteed"),
        pytest.param(asks(requests={"memory": "100Mi"}), {"memory.low": str(100 * MIB)}, id="burstable"),
        pytest.param(asks(requests={"cpu": "1"}), {"memory.min": "0", "memory.low": "0"}, id="asks for no memory"),
        pytest.param(asks(), {"memory.min": "0", "memory.low": "0"}, id="best effort"),
    ],
)
def test_what_is_kept_for_containers(container: Json, expect: dict[str, str]) -> None:
    assert unified(container, TIERED) == {**expect, "memory.high": "max"}


@pytest.mark.parametrize(
    ("container", "spec", "expect"),
    [
        pytest.param(asks(requests={"memory": "100Mi"}, limits={"memory": "200Mi"}), {}, str(150 * MIB), id="between"),
        pytest.param(asks(requests={"memory": "100Mi"}), {}, str(550 * MIB), id="the node is the limit"),
        pytest.param(asks(), {}, str(500 * MIB), id="best effort"),
        pytest.param(asks(requests=WHOLE, limits=WHOLE), {}, "max", id="guaranteed"),
        pytest.param(
            asks(requests={"memory": "1001"}, limits={"memory": "5097"}), {}, "max", id="less than a page above"
        ),
        pytest.param(asks(requests={"memory": "4096"}, limits={"memory": "12289"}), {}, "8192", id="whole pages"),
        pytest.param(asks(), {"resources": {"limits": {"memory": "1Gi"}}}, "max", id="the pod's counts"),
        pytest.param(asks(requests={"memory": "2000Mi"}), {}, "max", id="more than there is"),
    ],
)
def test_where_containers_are_slowed_down(container: Json, spec: Json, expect: str) -> None:
    assert unified(container, HALF, **spec) == {"memory.min": "0", "memory.low": "0", "memory.high": expect}


def test_with_the_gate_off_nothing_is_kept_and_nobody_is_slowed_down() -> None:
    off = MemoryQos(on=False, throttling=0.5, reserves=True)
    asked = asks(requests={"memory": "100Mi"}, limits={"memory": "200Mi"})
    assert unified(asked, off) == {"memory.high": "max"}
    assert cgroups.limits_of_pod(pod(asked), Policy(memory=off)) == cgroups.limits_of_pod(pod(asked), Policy())


def test_v1_has_none_of_it() -> None:
    asked = pod(asks(requests={"memory": "100Mi"}))
    policy = Policy(memory=MemoryQos(throttling=0.5, reserves=True))
    assert unified(asked.spec["containers"][0], policy.memory, version=1) == {}
    files = [file for _, file, _ in cgroups.writes(cgroups.limits_of_pod(asked, policy), 1, ())]
    assert files and not [file for file in files if file.startswith(("memory.min", "memory.low", "memory.high"))]


@pytest.mark.parametrize(
    ("containers", "policy", "spec", "expect"),
    [
        pytest.param([asks(requests=WHOLE, limits=WHOLE)], TIERED, {}, (100 * MIB, None, None), id="guaranteed"),
        pytest.param(
            [asks("a", {"memory": "1Mi"}), asks("b", {"memory": "2Mi"})],
            TIERED,
            {},
            (None, 3 * MIB, None),
            id="burstable",
        ),
        pytest.param([asks()], TIERED, {}, (None, 0, None), id="best effort"),
        pytest.param([asks(requests={"memory": "1Mi"})], MemoryQos(), {}, (None, None, None), id="by default"),
        pytest.param(
            [asks()],
            HALF,
            {"resources": {"requests": {"memory": "100Mi"}, "limits": {"memory": "200Mi"}}},
            (None, None, 150 * MIB),
            id="slowed down as a whole",
        ),
        pytest.param(
            [asks(requests={"memory": "100Mi"}, limits={"memory": "200Mi"})],
            HALF,
            {},
            (None, None, 0),
            id="by containers",
        ),
    ],
)
def test_pods(containers: list[Json], policy: MemoryQos, spec: Json, expect: tuple[int | None, ...]) -> None:
    found = cgroups.limits_of_pod(pod(*containers, **spec), Policy(memory=policy))
    assert (found.memory_min, found.memory_low, found.memory_high) == expect


def test_units_of_systemd_have_the_same() -> None:
    limits = Limits(memory_min=1, memory_low=2, memory_high=0)
    assert cgroups.slice_properties(limits, 2) == ["MemoryMin=1", "MemoryLow=2", "MemoryHigh=infinity"]
    assert cgroups.slice_properties(limits, 1) == []


@pytest.mark.parametrize("on", [True, False])
def test_what_is_reserved_for_the_system_is_kept_for_it(on: bool) -> None:
    wanted = node_allocatable.Reservation("system-reserved", {"memory": "1Gi", "cpu": "1"}, "/system.slice")
    (found,) = node_allocatable.reserved(["system-reserved"], [wanted], 2, MemoryQos(on=on))
    assert (("memory", "memory.min", str(1 << 30)) in found.writes) is on


async def test_all_that_is_above_a_pod_keeps_as_much() -> None:
    """Or the kernel does not keep it: protection is bounded by that of each cgroup above."""
    files = FakeCgroupFiles()
    tree = KubepodsTree(CgroupTree(Mounts(2, {"": files.top}), files), Policy(memory=TIERED))
    await tree.setup(NODE)
    await tree.ensure_pod(pod(asks(requests=WHOLE, limits=WHOLE), meta={"uid": "g"}))
    await tree.ensure_pod(pod(asks(requests={"memory": "7Mi"}), meta={"uid": "b"}))
    assert _kept(files, "/kubepods") == (str(107 * MIB), str(7 * MIB))
    assert _kept(files, "/kubepods/burstable") == (None, str(7 * MIB))
    assert _kept(files, "/kubepods/podg") == (str(100 * MIB), None)
    assert _kept(files, "/kubepods/burstable/podb") == (None, str(7 * MIB))
    assert (tree.kept.guaranteed, tree.kept.burstable) == (100 * MIB, 7 * MIB)
    assert files.dump()["/kubepods"]["memory.max"] == str(1000 * MIB)
    await tree.remove_pod("g")
    assert _kept(files, "/kubepods") == (str(7 * MIB), str(7 * MIB))


async def test_what_an_agent_with_another_policy_left_is_taken_back() -> None:
    files = FakeCgroupFiles()
    for policy in (TIERED, MemoryQos()):
        tree = KubepodsTree(CgroupTree(Mounts(2, {"": files.top}), files), Policy(memory=policy))
        await tree.setup(NODE)
        await tree.ensure_pod(pod(asks(requests={"memory": "7Mi"}), meta={"uid": "b"}))
    assert _kept(files, "/kubepods") == ("0", "0")
    assert _kept(files, "/kubepods/burstable") == (None, "0")


def _kept(files: FakeCgroupFiles, path: str) -> tuple[str | None, str | None]:
    found = files.dump()[path]
    return found.get("memory.min"), found.get("memory.low")
