"""A pod that names more claims than anybody has devices, which whoever may create pods can do without any driver."""

from __future__ import annotations

import time

from agent.common.model.pods import Pod
from agent.devices.model.dra import ClaimRef, ClaimState, PreparedDevice
from agent.devices.plan import dra, dra_health
from agent.devices.plan.pod_resources import pod_resources
from agent.devices.work.dra import DraManager, DraManagerDeps
from nodelib.json_values import Json
from tests.builders.pods import container, pod
from tests.fakes.checkpoints import MemoryFiles
from tests.fakes.clock import FakeClock
from tests.fakes.dra import no_driver

MANY = 20_000  # 1.1 MB as an object of the API
_SECONDS = 2.0  # of CPU; it takes a tenth of one, and half a minute when all names are gone through for each


def greedy() -> Pod:
    """One claim under as many names as fit, all of which one container wants."""
    names = [f"a{number}" for number in range(MANY)]
    box = container(resources={"claims": [{"name": one} for one in names]})
    return pod(box, resourceClaims=[{"name": one, "resourceClaimName": "c1"} for one in names])


def state_of(who: Pod, devices: int) -> ClaimState:
    found = tuple(PreparedDevice("drv", "p", f"d{one}", ("r",), (f"v/c={one}",)) for one in range(devices))
    return ClaimState(ClaimRef(who.namespace, "c1", "u"), ("drv",), frozenset({who.uid}), True, found)


def test_claims_that_do_not_exist_cost_a_status_nothing() -> None:
    who = greedy()
    began = time.process_time()
    assert dra_health.health_status(who, [], {}, messages=True) == {}
    assert time.process_time() - began < _SECONDS


def test_all_names_of_one_claim() -> None:
    who = greedy()
    (box,), states = who.spec["containers"], [state_of(who, 32)]
    began = time.process_time()
    shown = dra_health.health_status(who, states, {}, messages=True)
    granted = dra.grant(who, box, states)
    listed = pod_resources(who, {}, states)
    assert time.process_time() - began < _SECONDS
    assert sum(len(one["resources"]) for one in shown["main"]) <= 1000 and shown["main"][0]["name"] == "claim:a0"
    assert len(granted.cdi_devices) == 32
    assert [len(one["claim_resources"]) for one in listed["containers"][0]["dynamic_resources"]] == [32]


def test_many_containers_that_use_a_claim_each() -> None:
    boxes = [container(f"b{number}", resources={"claims": [{"name": f"a{number}"}]}) for number in range(4000)]
    names = [{"name": f"a{number}", "resourceClaimName": "c1"} for number in range(4000)]
    who = pod(*boxes, resourceClaims=names)
    began = time.process_time()
    found = pod_resources(who, {}, [state_of(who, 1)])
    dra_health.health_status(who, [state_of(who, 1)], {}, messages=True)
    assert time.process_time() - began < _SECONDS
    assert all(one["dynamic_resources"] for one in found["containers"])


class _Empty:
    """Claims that ask for no device: the scheduler allocates them without any driver."""

    async def claim(self, namespace: str, name: str) -> Json | None:
        status = {"reservedFor": [{"uid": "u1"}], "allocation": {"devices": {"results": []}}}
        return {"metadata": {"namespace": namespace, "name": name, "uid": f"uid-{name}"}, "status": status}

    async def delete_slices(self, driver: str) -> None:
        return None


async def test_claims_without_devices_are_not_recorded() -> None:
    """The checkpoint is written whole for each of them: a thousand took the event loop half a minute."""
    names = [f"c{number}" for number in range(1000)]
    who = pod(meta={"uid": "u1"}, resourceClaims=[{"name": one, "resourceClaimName": one} for one in names])
    files = MemoryFiles()
    manager = DraManager(DraManagerDeps(files, _Empty(), no_driver, FakeClock(), lambda: None, lambda: None))
    began = time.process_time()
    await manager.prepare(who)
    await manager.release("u1")
    assert time.process_time() - began < _SECONDS
    assert not list(manager.states)


class _Shared:
    """One claim that the pod may use; `asked`: how often the API server was asked for it."""

    def __init__(self, user: Pod) -> None:
        self.asked, self._user = 0, user

    async def claim(self, namespace: str, name: str) -> Json | None:
        self.asked += 1
        status = {"reservedFor": [{"uid": self._user.uid}], "allocation": {"devices": {"results": []}}}
        return {"metadata": {"namespace": namespace, "name": name, "uid": "u"}, "status": status}

    async def delete_slices(self, driver: str) -> None:
        return None


async def test_a_claim_of_many_names_is_asked_for_once() -> None:
    """Each try of the pod asked the API server for it 20,000 times, out of the rate that all pods of the node share."""
    who = greedy()
    shared = _Shared(who)
    manager = DraManager(DraManagerDeps(MemoryFiles(), shared, no_driver, FakeClock(), lambda: None, lambda: None))
    began = time.process_time()
    await manager.prepare(who)
    assert (shared.asked, time.process_time() - began < _SECONDS) == (1, True)
