"""What costs the runtime processes is done a few at a time on a node that is built, too, not only in tests."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any
from unittest.mock import MagicMock

import pytest

from agent.build import core as core_module
from agent.build.core import Core
from agent.build.gates import Gates, node_gates
from agent.build.pods import pod_deps
from agent.common.work.gate import Gate
from agent.pods.work.deps import ContainerDeps
from agent.pods.work.ends import Ends
from agent.server.work import ServerDeps
from tests.fakes.clock import settle
from tests.waiting import until


def anything(**known: Any) -> Any:
    return MagicMock(**known)


def test_the_places_go_by_the_processors() -> None:
    """Of none are there as many as a Gate has by itself: 4."""
    made = node_gates(6)
    places = {name: getattr(made, name).places for name in Gates.__slots__}
    ends = {"ends": 12, "ends_beside_starts": 3, "releases": 24}
    assert places == {"sandboxes": 12, "starts": 12, **ends, "updates": 3, "probes": 24, "commands": 24}
    assert node_gates(1).updates.places == node_gates(1).ends_beside_starts.places == 1


def built_with(gates: Gates) -> ContainerDeps:
    base = anything()
    base.settings.images.providers_config = base.settings.images.providers_dir = ""
    one = anything()
    return pod_deps(base, one, one, one, one, one, one, gates, lambda pod: None).containers


def test_each_gate_of_the_pods_is_built_in() -> None:
    gates = node_gates(6)
    built = built_with(gates)
    named = [getattr(built, name) for name in ("sandbox_gate", "start_gate", "update_gate", "release_gate")]
    assert named == [gates.sandboxes, gates.starts, gates.updates, gates.releases]


async def test_the_gates_of_ends_are_built_in() -> None:
    gates = node_gates(1)
    ends = built_with(gates).ends
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(gates.ends.places):
            await stack.enter_async_context(gates.ends.place())
        later = asyncio.create_task(stack.enter_async_context(ends.turn("shop")))
        await settle()
        assert gates.ends.waiting == 1
        later.cancel()
    async with gates.ends_beside_starts.place():
        with ends.starting("other"):
            later = asyncio.create_task(stack.enter_async_context(ends.turn("shop")))
            await settle()
            assert gates.ends_beside_starts.waiting == 1
            later.cancel()


@pytest.mark.parametrize("beside_starts", [False, True])
async def test_containers_that_take_their_grace_keep_no_other_of_their_namespace_waiting(beside_starts: bool) -> None:
    """Those that had begun to end counted until they had ended, and may have hours: as long as anybody else had some
    in line, nothing else of their namespace could end."""
    gates = node_gates(1)
    ends, begun = Ends(gates.ends, gates.ends_beside_starts), list[str]()
    go, tasks = asyncio.Event(), list[asyncio.Task[None]]()

    async def end(namespace: str, name: str, over: asyncio.Event | None = None) -> None:
        async with ends.turn(namespace):
            begun.append(name)
            if over is not None:
                await over.wait()

    def begin(namespace: str, name: str, over: asyncio.Event | None = None) -> None:
        tasks.append(asyncio.create_task(end(namespace, name, over)))

    with ends.starting("third") if beside_starts else contextlib.nullcontext():
        for number in range(3):
            begin("shop", f"slow{number}", go)
        await until(lambda: len(begun) == 3, 5)
        held = asyncio.Event()
        for _ in range(gates.ends.places):
            begin("evil", "first", held)
        await until(lambda: begun.count("first") == gates.ends.places, 5)  # by then the slow ones hold no place
        for _ in range(20):
            begin("evil", "evil", held)
        begin("shop", "next")
        await settle()
        held.set()
        await until(lambda: "next" in begun, 10)
        assert begun[: begun.index("next")].count("evil") <= 3
    go.set()
    await asyncio.gather(*tasks)


async def test_commands_of_probes_that_take_long_keep_no_other_of_their_namespace_waiting() -> None:
    """The same: nine that took longer than a second, on two processors."""
    gate, begun, go, held = node_gates(1).probes, list[str](), asyncio.Event(), asyncio.Event()
    tasks = list[asyncio.Task[None]]()

    async def probe(namespace: str, over: asyncio.Event) -> None:
        async with gate.place(group=namespace):
            begun.append(namespace)
            await over.wait()

    def begin(number: int, namespace: str, over: asyncio.Event) -> None:
        tasks.extend(asyncio.create_task(probe(namespace, over)) for _ in range(number))

    begin(gate.places + 1, "shop", go)
    await until(lambda: begun.count("shop") == gate.places + 1, 5)
    begin(gate.places, "evil", held)
    await until(lambda: begun.count("evil") == gate.places, 5)
    begun.clear()
    begin(20, "evil", held)
    begin(1, "shop", held)
    await settle()
    held.set()
    await until(lambda: "shop" in begun, 10)
    assert begun.index("shop") <= gate.places
    go.set()
    await asyncio.gather(*tasks)


async def test_the_gate_of_clients_commands_is_built_in(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[ServerDeps] = []

    async def start(deps: ServerDeps) -> None:
        served.append(deps)

    monkeypatch.setattr(core_module, "start", start)
    core = anything(commands=node_gates(6).commands)
    await Core.start_server(core)
    assert served[0].commands is core.commands


@pytest.mark.parametrize(("kind", "without"), [(ContainerDeps, ["takeover_gate"]), (ServerDeps, [])])
def test_no_gate_can_be_left_out(kind: Any, without: list[str]) -> None:
    """Each had one of its own by default, so that nobody noticed. Takeovers are the same on every node."""
    fields = kind.__dataclass_fields__.values()
    assert [one.name for one in fields if one.default_factory is Gate] == without
