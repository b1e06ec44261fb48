"""The resource managers in the whole pod pipeline: real pod workers over fakes, in virtual time."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from decimal import Decimal

import pytest

from agent.managers.model.cpus import CpuTopology
from agent.managers.plan import cpus
from agent.managers.plan.admission import Policies
from agent.managers.plan.checkpoint import CPU_FILE
from agent.managers.plan.memory_checkpoint import MEMORY_FILE
from agent.managers.plan.memory_policy import memory_policy
from agent.managers.plan.options import CpuOptions, TopologyOptions
from agent.managers.plan.topology import topology_policy
from nodelib.errors import Permanent
from nodelib.json_values import Json
from tests.builders.metrics import series
from tests.builders.pods import container
from tests.fakes.clock import settle
from tests.fakes.pod_world import World
from tests.unit.agent.managers.machines import SMT, TWO, asks
from tests.unit.agent.managers.test_memory_blocks import PAIR

LOOSE: Json = {"requests": {"cpu": "100m"}}


def static(topology: CpuTopology = TWO, **options: bool) -> Policies:
    return Policies(cpus.static_policy(topology, 1, frozenset(), CpuOptions(**options)))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    made.node = made.node.__class__(name="n1", allocatable={"cpu": "8", "memory": "4Gi", "pods": "10"})
    made.policies = static()
    await made.start_agent()
    yield made
    await made.kill_agent()


def where(world: World, uid: str = "u1", name: str = "main") -> str:
    found = [one for one in world.cri.containers.values() if (one.uid, one.name) == (uid, name)]
    return str(found[-1].resources.get("cpuset_cpus", ""))


def kept(world: World) -> Json:
    return json.loads(json.loads(world.checkpoints.files[CPU_FILE])["data"])  # type: ignore[no-any-return]


async def test_a_guaranteed_pod_has_a_cpu_and_others_leave_it(world: World) -> None:
    world.create(container(resources=LOOSE), name="loose", uid="u0")
    await world.until(lambda: world.is_ready("u0"))
    assert where(world, "u0") == "0-1"
    world.create(container(resources=asks("1")))
    await world.until(world.is_ready)
    assert where(world) == "1"
    assert world.cri.containers[next(iter(_ids(world, "u1")))].resources["cpu_quota"] == -1
    await world.until(lambda: where(world, "u0") == "0", seconds=1)
    assert kept(world) == {"policyName": "static", "defaultCpuSet": "0", "entries": {"u1": {"main": "1"}}}


def _ids(world: World, uid: str) -> list[str]:
    return [one.id for one in world.cri.containers.values() if one.uid == uid]


async def test_what_does_not_fit_is_refused_with_a_reason(world: World) -> None:
    world.create(container(resources=asks("1")))
    await world.until(world.is_ready)
    world.create(container(resources=asks("1")), name="second", uid="u2")
    await world.until(lambda: world.phase("u2") == "Failed")
    assert world.status("u2")["reason"] == "UnexpectedAdmissionError"
    assert "not enough cpus available to satisfy request: requested=1, available=0" in world.status("u2")["message"]
    assert "1 exclusive CPUs asked for, 0 free" in world.managers.detail("u2")


async def test_the_cpus_of_a_deleted_pod_return_to_the_pool(world: World) -> None:
    world.create(container(resources=LOOSE), name="loose", uid="u0")
    world.create(container(resources=asks("1")))
    await world.until(lambda: where(world, "u0") == "0")
    world.api.ask_deletion("u1", 1)
    await world.until(lambda: "u1" not in world.api.pods)
    await world.until(lambda: where(world, "u0") == "0-1")
    assert "entries" not in kept(world)


async def test_the_successor_of_a_pod_deleted_by_force_gets_its_cpus(world: World) -> None:
    """As in active(): the scheduler counts them as free while the containers linger, which leave them."""
    world.create(container(resources=asks("1")))
    await world.until(world.is_ready)
    world.cri.ignores_term.add("main")
    world.api.vanish("u1")
    world.create(container(resources=asks("1")), name="second", uid="u2")
    await world.until(lambda: world.is_ready("u2") or world.phase("u2") == "Failed", seconds=20)
    assert (world.phase("u2"), where(world, "u2")) == ("Running", "1")
    assert (where(world, "u1"), world.cri.running()) == ("0", ["main", "main"])
    assert list(world.managers.state.cpus.assignments) == [("u2", "main")]


async def test_the_next_agent_restores_the_cpus(world: World) -> None:
    world.create(container(resources=asks("1")))
    await world.until(world.is_ready)
    await world.kill_agent()
    await world.start_agent()
    await world.until(world.is_ready)
    assert world.managers.state.cpus.assignments == {("u1", "main"): frozenset({1})}
    world.create(container(resources=asks("1")), name="second", uid="u2")
    await world.until(lambda: world.phase("u2") == "Failed")
    assert where(world) == "1"


async def test_pods_that_were_deleted_while_no_agent_ran_have_no_cpus(world: World) -> None:
    await world.kill_agent()
    entries = {"policyName": "static", "defaultCpuSet": "0", "entries": {"gone": {"main": "1"}}, "checksum": 0}
    world.checkpoints.files[CPU_FILE] = json.dumps(entries)
    await world.start_agent()
    await world.until(lambda: kept(world)["defaultCpuSet"] == "0-1")
    assert "entries" not in kept(world)
    assert not world.managers.state.cpus.assignments


async def test_a_new_pod_of_the_first_list_gets_cpus_of_a_deleted_pod(world: World) -> None:
    world.create(container(resources=asks("1")))
    await world.until(world.is_ready)
    await world.kill_agent()
    del world.api.pods["u1"]
    world.create(container(resources=asks("1")), name="second", uid="u2")
    await world.start_agent()
    await world.until(lambda: world.is_ready("u2") or world.phase("u2") == "Failed")
    assert (world.phase("u2"), list(world.managers.state.cpus.assignments)) == ("Running", [("u2", "main")])


async def test_a_new_pod_of_the_first_list_gets_cpus_of_an_unknown_pod(world: World) -> None:
    await world.kill_agent()
    entries = {"policyName": "static", "defaultCpuSet": "0", "entries": {"gone": {"main": "1"}}, "checksum": 0}
    world.checkpoints.files[CPU_FILE] = json.dumps(entries)
    world.create(container(resources=asks("1")))
    await world.start_agent()
    await world.until(lambda: world.is_ready() or world.phase() == "Failed")
    assert (world.phase(), list(world.managers.state.cpus.assignments)) == ("Running", [("u1", "main")])


async def test_running_pods_come_before_new_ones_in_the_first_list(world: World) -> None:
    world.create(container(resources=asks("1")))
    await world.until(world.is_ready)
    await world.kill_agent()
    del world.checkpoints.files[CPU_FILE]
    world.create(container(resources=asks("1")), name="second", uid="u2")
    world.api.pods = {uid: world.api.pods[uid] for uid in ("u2", "u1")}
    await world.start_agent()
    await world.until(lambda: world.phase("u2") == "Failed")
    assert (world.phase(), list(world.managers.state.cpus.assignments)) == ("Running", [("u1", "main")])


async def test_a_running_pod_gets_cpus_when_the_policy_changes(world: World) -> None:
    await world.kill_agent()
    del world.checkpoints.files[CPU_FILE]
    world.policies = Policies()
    await world.start_agent()
    world.create(container(resources=asks("1")))
    await world.until(world.is_ready)
    assert (where(world), CPU_FILE in world.checkpoints.files) == ("", False)
    await world.kill_agent()
    world.policies = static()
    await world.start_agent()
    await world.until(lambda: where(world) == "1")


@pytest.mark.parametrize("policies", [Policies(), static(SMT)])
async def test_a_foreign_file_is_refused_with_what_to_do(world: World, policies: Policies) -> None:
    await world.kill_agent()
    world.policies = policies
    with pytest.raises(Permanent) as refused:
        await world.start_agent()
    assert 'drain this node and delete the CPU manager checkpoint file "/var/lib/kubelet/cpu_manager_state"' in str(
        refused.value
    )


async def test_memory_is_assigned_to_numa_nodes(world: World) -> None:
    await world.kill_agent()
    del world.checkpoints.files[CPU_FILE]
    reserved = [(0, {"memory": 1 << 30})]
    world.policies = Policies(memory=memory_policy(PAIR.nodes, reserved, {"memory": Decimal(1 << 30)}))
    await world.start_agent()
    first = container("first", resources=asks("500m", "1Gi"))
    world.create(container(resources=asks("500m", "3Gi")), initContainers=[first])
    await world.until(lambda: world.container_status("first").get("state", {}).get("running"))
    (one,) = world.cri.containers.values()
    assert (one.resources["cpuset_mems"], "cpuset_cpus" in one.resources) == ("0", False)
    world.cri.exit("first")
    await world.until(world.is_ready)
    main = next(one for one in world.cri.containers.values() if one.name == "main")
    assert main.resources["cpuset_mems"] == "0"
    assert list(world.managers.state.memory.assignments) == [("u1", "main")]
    kept = json.loads(json.loads(world.checkpoints.files[MEMORY_FILE])["data"])
    assert kept["entries"] == {"u1": {"main": [{"numaAffinity": [0], "type": "memory", "size": 3 << 30}]}}
    await world.kill_agent()
    await world.start_agent()
    await world.until(world.is_ready)
    assert list(world.managers.state.memory.assignments) == [("u1", "main")]


async def test_a_resize_of_its_cpus_is_infeasible(world: World) -> None:
    world.create(container(resources=asks("1")))
    await world.until(world.is_ready)

    def change(raw: Json) -> None:
        raw["spec"]["containers"][0]["resources"] = asks("2")
        raw["metadata"]["generation"] = 2

    world.api.update("u1", change)
    await settle()
    await world.until(lambda: any(one["type"] == "PodResizePending" for one in world.status().get("conditions") or []))
    found = next(one for one in world.status()["conditions"] if one["type"] == "PodResizePending")
    assert found["reason"] == "Infeasible"
    assert found["message"] == 'Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"'
    assert series(world.metrics, "kubelet_pod_infeasible_resizes_total") == {
        ("guaranteed_pod_cpu_manager_static_policy",): 1
    }


async def test_a_pod_that_another_rule_refuses_has_no_cpus(world: World) -> None:
    world.create(container(resources=asks("1", "64Gi")))
    await world.until(lambda: world.phase() == "Failed")
    assert world.status()["reason"] == "OutOfmemory"
    assert not world.managers.state.cpus.assignments


async def test_admissions_are_counted(world: World) -> None:
    world.create(container(resources=asks("1")))
    await world.until(world.is_ready)
    world.create(container(resources=asks("1")), name="second", uid="u2")
    await world.until(lambda: world.phase("u2") == "Failed")
    found = world.managers.counts()
    assert (found.admissions.cpu_requests, found.admissions.cpu_errors, found.admissions.topology_requests) == (2, 1, 2)
    assert (found.shared, found.exclusive, found.per_numa, sum(found.durations)) == (0, 1, {0: 1}, 2)


async def test_the_topology_manager_alone_writes_nothing(world: World) -> None:
    await world.kill_agent()
    del world.checkpoints.files[CPU_FILE]
    world.policies = Policies(None, topology_policy("restricted", "pod", TWO.nodes, TopologyOptions()))
    await world.start_agent()
    world.create(container(resources=asks("1")))
    await world.until(world.is_ready)
    assert (where(world), CPU_FILE in world.checkpoints.files) == ("", False)
