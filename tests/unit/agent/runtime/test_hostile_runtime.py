"""A runtime that answers malformed, late or never for some pods: the others go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from cri_api.v1 import api_pb2

from agent.common.model.errors import CriError
from agent.common.model.pods import ContainerState, RunState
from agent.runtime.edge import convert
from agent.runtime.work.observer import Observer
from nodelib.tasks import cancel_and_wait
from tests.builders.metrics import metrics
from tests.builders.pods import container
from tests.fakes.clock import FakeClock, settle
from tests.fakes.fake_cri import FakeCri
from tests.fakes.pod_world import World
from tests.waiting import until

# The stubs want enums and messages; the wire may have any number.
pb: Any = api_pb2
_UID = "0b2c7f2e-0000-4000-8000-000000000001"


@pytest.mark.parametrize("number", [-1, 999, 2**31 - 1])
def test_unknown_numbers_of_enums(number: int) -> None:
    """A newer runtime, or a broken one."""
    options = {"namespaces": {"options": {"network": number}}}
    status = pb.PodSandboxStatus(id="s", metadata={"uid": _UID}, linux=options, state=number)
    sandbox = convert.sandbox_status(status)
    assert sandbox.uid == _UID and not sandbox.ready
    one = convert.container_status(pb.ContainerStatus(id="c", stop_signal=number, state=number))
    assert one.state is RunState.UNKNOWN and one.stop_signal == ""
    event = convert.event(pb.ContainerEventResponse(container_id="c", container_event_type=number))
    assert event.ended is None


@pytest.mark.parametrize(
    ("uid", "taken"),
    [
        pytest.param(_UID, _UID, id="a UID"),
        pytest.param("a1b2c3", "a1b2c3", id="of a static pod"),
        pytest.param("..", "", id="the folder above"),
        pytest.param(".", "", id="the folder of all pods"),
        pytest.param("a/../../etc", "", id="a path"),
        pytest.param("a\n", "", id="a line feed"),
        pytest.param("a\x00", "", id="NUL"),
        pytest.param("x" * 5000, "", id="long"),
    ],
)
def test_a_uid_that_would_be_a_path_is_no_pod(uid: str, taken: str) -> None:
    """Folders are made and removed by it. What somebody else runs in the runtime is not a pod of this node."""
    labels = {convert.POD_UID: uid}
    assert convert.sandbox_listed(pb.PodSandbox(id="s", metadata={"uid": uid})).uid == taken
    assert convert.sandbox_status(pb.PodSandboxStatus(id="s", metadata={"uid": uid})).uid == taken
    assert convert.container_listed(pb.Container(id="c", labels=labels)).uid == taken
    assert convert.container_status(pb.ContainerStatus(id="c", labels=labels)).uid == taken
    sandbox = pb.PodSandboxStatus(id="s", metadata={"uid": uid})
    assert convert.event(pb.ContainerEventResponse(container_id="c", pod_sandbox_status=sandbox)).uid == taken


class Runtime(FakeCri):
    """The status of containers in `broken` cannot be read; the one of containers in `hung` never comes."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.broken: set[str] = set()
        self.hung: set[str] = set()
        self.odd: set[str] = set()

    async def container_status(self, container_id: str) -> ContainerState:
        if container_id in self.broken:
            raise CriError("input/output error", code="UNKNOWN", step="container status")
        if container_id in self.odd:
            raise RecursionError("an answer that nobody has thought of")
        if container_id in self.hung:
            await asyncio.Event().wait()
        return await super().container_status(container_id)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World(Runtime)
    await made.start_agent()
    for number in range(1, 4):
        made.create(container("main"), uid=f"u{number}", name=f"web{number}")
        await made.until(lambda uid=f"u{number}": made.is_ready(uid))  # type: ignore[misc]
    yield made
    await made.kill_agent()


def _ids(world: World, uid: str) -> set[str]:
    return {one.id for one in world.cri.containers.values() if one.uid == uid}


@pytest.mark.parametrize("how", ["broken", "hung", "odd"])
async def test_a_fresh_agent_sees_the_other_pods(world: World, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And does not take the pod that it cannot see for one without containers."""
    monkeypatch.setattr("agent.runtime.work.views._LIMIT", 0.05)
    await world.kill_agent()
    getattr(world.cri, how).update(_ids(world, "u1"))
    before = dict(world.cri.containers)
    await world.start_agent()
    observer = world.deps.observer
    await until(observer.audited.is_set, clock=world.clock)
    assert observer.seen("u2").containers and observer.seen("u3").containers
    assert observer.uids() == {"u1", "u2", "u3"}
    for _ in range(5):
        await world.clock.advance(10)
        await settle()
    assert world.cri.containers == before, "nothing was started or stopped"
    getattr(world.cri, how).clear()
    await until(lambda: observer.seen("u1").containers, clock=world.clock)
    world.api.ask_deletion("u1", 1)
    await world.until(lambda: not _ids(world, "u1") and "u1" not in world.api.pods)


async def test_pods_that_hang_do_not_hold_hints_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.runtime.work.views._LIMIT", 0.05)
    clock = FakeClock()

    asked: list[str] = []

    class Silent:
        async def list_sandboxes(self, uid: str | None = None) -> tuple[()]:
            asked.append(uid or "")
            if uid and uid.startswith("hung"):
                await asyncio.Event().wait()
            return ()

        async def list_containers(self, uid: str | None = None) -> tuple[()]:
            return ()

    observer = Observer(Silent(), None, clock, metrics())  # type: ignore[arg-type]
    task = asyncio.create_task(observer.run_hints())
    for number in range(20):
        observer.hint(f"hung{number}")
    observer.hint("well")
    await until(lambda: "well" in asked, 10)
    await cancel_and_wait(task)
