"""The health of the devices of DRA drivers, from a driver's stream on a real socket to what a pod's status shows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from agent.devices.edge.dra_driver import DraDriver
from agent.devices.model.dra import ClaimRef, ClaimState, PreparedDevice
from agent.devices.plan import dra_health as plan
from agent.devices.work.dra_health import DraHealth
from agent.plugins.edge.apis import DRA, DRA_HEALTH, DRA_HEALTH_ALPHA
from nodelib.json_values import Json
from nodelib.plugin_apis.errors import Refused
from nodelib.plugin_apis.server import serve
from nodelib.tasks import cancel_and_wait
from tests.builders.pods import container, pod
from tests.fakes.clock import FakeClock, settle
from tests.waiting import until

KEY = ("pool", "dev-1")
REF = ClaimRef("shop", "c1", "claim-uid")
ONE = PreparedDevice("drv", "pool", "dev-1", ("gpu",), ("v/c=1",))
TWO = PreparedDevice("drv", "pool", "dev-2", ("nic",))


def entry(name: str = "dev-1", health: int = 1, **more: Any) -> Json:
    return {"device": {"pool_name": "pool", "device_name": name}, "health": health, **more}


class _Driver:
    """Serves the health of its devices; `say()` tells it to those who watch."""

    def __init__(self, folder: Path) -> None:
        self.socket = f"{folder}/dra.sock"
        self.listed: list[Json] = [entry()]
        self.watches, self.refuses = 0, False
        self._news = asyncio.Event()

    async def start(self, version: str = "v1") -> grpc.aio.Server:
        api = DRA_HEALTH if version == "v1" else DRA_HEALTH_ALPHA
        return await serve(self.socket, [api.handler("DRAResourceHealth", {"NodeWatchResources": self._watch})])

    def say(self, *listed: Json) -> None:
        self.listed = list(listed)
        self._news.set()

    async def _watch(self, request: Json) -> AsyncIterator[Json]:
        self.watches += 1
        if self.refuses:
            raise Refused("UNIMPLEMENTED", "no health here")
        while True:
            self._news.clear()
            yield {"devices": self.listed}
            await self._news.wait()


class _World:
    def __init__(self, folder: Path) -> None:
        self.driver, self.clock = _Driver(folder), FakeClock()
        self.changes: list[tuple[str, frozenset[tuple[str, str]]]] = []
        self.health = DraHealth(self.clock, lambda name, devices: self.changes.append((name, devices)))
        self.source = DraDriver("drv", self.driver.socket, "v1.DRAPlugin")

    def status(self, key: tuple[str, str] = KEY) -> str:
        found = self.health.known.get("drv", {}).get(key)
        return found.status if found is not None else "Unknown"

    async def until_status(self, status: str) -> None:
        async with asyncio.timeout(20):
            while self.status() != status:
                await self.clock.advance(0.1)
                await asyncio.sleep(0.01)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[_World]:
    made = _World(tmp_path)
    running = asyncio.create_task(made.health.run())
    yield made
    await cancel_and_wait(running)
    await made.source.close()


@pytest.mark.parametrize("version", ["v1", "v1alpha1"])
async def test_the_health_follows_the_driver(world: _World, version: str) -> None:
    server = await world.driver.start(version)
    try:
        await world.health.watch("drv", world.source, f"{version}.DRAResourceHealth")
        await world.until_status("Healthy")
        assert world.changes == [("drv", frozenset({KEY}))]
        world.driver.say(entry(health=2, message="too hot"))
        await world.until_status("Unhealthy")
        assert world.health.known["drv"][KEY].message == "too hot" and len(world.changes) == 2
        world.driver.say(entry(health=2, message="too hot"))
        await world.clock.advance(1)
        await asyncio.sleep(0.1)
        assert len(world.changes) == 2, "the same again is no news"
    finally:
        await server.stop(None)


async def test_a_driver_that_ends_is_asked_again(world: _World) -> None:
    server = await world.driver.start()
    await world.health.watch("drv", world.source, "v1.DRAResourceHealth")
    await world.until_status("Healthy")
    await server.stop(None)
    await world.until_status("Unknown")
    assert world.changes[-1] == ("drv", frozenset({KEY}))
    server = await world.driver.start()
    try:
        await world.until_status("Healthy")
        await world.health.forget("drv")
        assert world.status() == "Unknown"
        watches = world.driver.watches
        await world.clock.advance(60)
        await asyncio.sleep(0.05)
        assert world.driver.watches == watches, "it has left"
    finally:
        await server.stop(None)


async def test_a_driver_without_the_service_is_asked_once(world: _World) -> None:
    world.driver.refuses = True
    server = await world.driver.start()
    try:
        await world.health.watch("drv", world.source, "v1.DRAResourceHealth")
        await until(lambda: world.driver.watches == 1)
        await asyncio.sleep(0.05)
        for _ in range(20):
            await world.clock.advance(1)
            await asyncio.sleep(0.005)
        assert world.driver.watches == 1
    finally:
        await server.stop(None)


async def test_what_is_not_told_again_is_not_known_any_more(world: _World) -> None:
    server = await world.driver.start()
    try:
        await world.health.watch("drv", world.source, "v1.DRAResourceHealth")
        await world.until_status("Healthy")
        await settle()
        await world.clock.advance(29)
        await settle()
        assert world.status() == "Healthy"
        await world.clock.advance(2)
        await settle()
        assert world.status() == "Unknown" and world.changes[-1] == ("drv", frozenset({KEY}))
    finally:
        await server.stop(None)


class _Patient(FakeClock):
    """Nobody waits; how long somebody wanted to is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


class _Three:
    """A driver that tells of so many devices three times, as fast as it can, and then nothing."""

    def __init__(self, entries: int) -> None:
        self._entries = entries

    async def watch_health(self, service: str) -> AsyncIterator[list[Json]]:
        for health in (1, 2, 1):
            yield [entry(f"dev-{number}", health) for number in range(self._entries)]
        await asyncio.Event().wait()


@pytest.mark.parametrize(("entries", "drivers", "pause"), [(1, 1, 0.1), (15_000, 1, 1.0), (15_000, 3, 3.0)])
async def test_large_reports_without_end_have_a_share_of_the_time(entries: int, drivers: int, pause: float) -> None:
    """Each takes the interpreter 15 microseconds for an entry: pods of others started late beside 30,000 of them."""
    clock = _Patient()
    healths = DraHealth(clock, lambda driver, devices: None)
    for number in range(drivers):
        await healths.watch(f"drv{number}", _Three(entries), "v1.DRAResourceHealth")
    await until(lambda: len(clock.slept) == 3 * drivers)
    for number in range(drivers):
        await healths.forget(f"drv{number}")
    assert min(clock.slept) >= pause


def test_a_report_is_the_drivers_whole_word_but_for_what_it_leaves_out() -> None:
    first, changed = plan.after_report({}, [entry("a"), entry("b", 2)], 0.0)
    assert changed == {("pool", "a"), ("pool", "b")}
    second, changed = plan.after_report(first, [entry("a", 2)], 10.0)
    assert changed == {("pool", "a")} and second[("pool", "b")].status == "Unhealthy"
    third, changed = plan.after_report(second, [entry("a", 2)], 31.0)
    assert changed == {("pool", "b")} and set(third) == {("pool", "a")}


@pytest.mark.parametrize(
    ("given", "status", "timeout"),
    [
        pytest.param(entry(), "Healthy", 30.0, id="without a time"),
        pytest.param(entry(health_check_timeout_seconds=5), "Healthy", 5.0, id="with one"),
        pytest.param(entry(health_check_timeout_seconds=-5), "Healthy", 30.0, id="with a negative one"),
        pytest.param(entry(health=7), "Unknown", 30.0, id="a state of tomorrow"),
        pytest.param(entry(health=0), "Unknown", 30.0, id="unknown"),
    ],
)
def test_what_an_entry_says(given: Json, status: str, timeout: float) -> None:
    found, _ = plan.after_report({}, [given], 100.0)
    assert (found[KEY].status, found[KEY].until) == (status, 100.0 + timeout)


def test_a_hostile_driver_is_bounded() -> None:
    found, _ = plan.after_report({}, [entry(f"dev-{number}") for number in range(20_000)], 0.0)
    assert len(found) == 16_384
    found, changed = plan.after_report(found, [entry("dev-0", 2), entry("another")], 1.0)
    assert changed == {("pool", "dev-0")} and len(found) == 16_384
    long, _ = plan.after_report({}, [entry("x" * 300), {"health": 1}, entry(message="é" * 1000)], 0.0)
    assert set(long) == {("None", "None"), KEY}
    assert len(long[KEY].message.encode()) <= 1024 and long[KEY].message.endswith("...")


@pytest.mark.parametrize(
    ("claim", "messages", "shown"),
    [
        pytest.param(
            {"name": "acc"},
            True,
            [
                {"resourceID": "v/c=1", "health": "Unhealthy", "message": "hot"},
                {"resourceID": "drv/pool/dev-2", "health": "Unknown"},
            ],
            id="a whole claim",
        ),
        pytest.param(
            {"name": "acc", "request": "gpu"},
            True,
            [{"resourceID": "v/c=1", "health": "Unhealthy", "message": "hot"}],
            id="one request",
        ),
        pytest.param(
            {"name": "acc", "request": "gpu"},
            False,
            [{"resourceID": "v/c=1", "health": "Unhealthy"}],
            id="without messages",
        ),
        pytest.param({"name": "acc", "request": "none"}, True, None, id="a request without devices"),
    ],
)
def test_what_a_status_shows(claim: Json, messages: bool, shown: list[Json] | None) -> None:
    who = pod(
        container("main", resources={"claims": [claim]}), resourceClaims=[{"name": "acc", "resourceClaimName": "c1"}]
    )
    states = [ClaimState(ClaimRef(who.namespace, "c1", "u"), ("drv",), frozenset({who.uid}), True, (ONE, TWO))]
    known, _ = plan.after_report({}, [entry(health=2, message="hot")], 0.0)
    name = f"claim:{claim['name']}" + (f"/{claim['request']}" if "request" in claim else "")
    wanted = {"main": [{"name": name, "resources": shown}]} if shown else {}
    assert plan.health_status(who, states, {"drv": known}, messages=messages) == wanted


def test_the_pods_of_a_device_and_no_others_are_told() -> None:
    states = [
        ClaimState(REF, ("drv",), frozenset({"a", "b"}), True, (ONE,)),
        ClaimState(ClaimRef("shop", "c2", "x"), ("drv",), frozenset({"c"}), True, (TWO,)),
    ]
    assert plan.users_of(states, "drv", {KEY}) == {"a", "b"}
    assert plan.users_of(states, "other", {KEY}) == frozenset()


def test_the_newest_service_is_chosen() -> None:
    both = ("v1.DRAPlugin", "v1alpha1.DRAResourceHealth", "v1.DRAResourceHealth")
    assert plan.service_of(both) == "v1.DRAResourceHealth"
    assert plan.service_of(("v1alpha1.DRAResourceHealth",)) == "v1alpha1.DRAResourceHealth"
    assert plan.service_of(("v1.DRAPlugin",)) == ""


async def test_health_and_claims_share_one_connection(tmp_path: Path) -> None:
    """Drivers may watch it (upstream: "must use one gRPC connection for all service calls")."""
    driver, connections = _Driver(tmp_path), 0
    ended = asyncio.Event()

    async def prepare(request: Json) -> Json:
        return {"claims": {"1": {"devices": []}}}

    async def watch(request: Json) -> AsyncIterator[Json]:
        try:
            yield {"devices": driver.listed}
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        behind = await asyncio.open_unix_connection(driver.socket)
        await asyncio.gather(_copy(reader, behind[1]), _copy(behind[0], writer))

    handlers = [
        DRA.handler("DRAPlugin", {"NodePrepareResources": prepare}),
        DRA_HEALTH.handler("DRAResourceHealth", {"NodeWatchResources": watch}),
    ]
    server = await serve(driver.socket, handlers)
    before = await asyncio.start_unix_server(count, f"{tmp_path}/before.sock")
    source = DraDriver("drv", f"{tmp_path}/before.sock", "v1.DRAPlugin")
    try:
        reports = source.watch_health("v1.DRAResourceHealth")
        assert (await anext(reports))[0]["health"] == 1
        assert await source.prepare([ClaimRef("default", "c1", "1")]) == {"1": {"devices": [], "error": ""}}
        await reports.aclose()  # type: ignore[attr-defined]  # of generators
        async with asyncio.timeout(20):
            await ended.wait()
        assert connections == 1
    finally:
        await source.close()
        before.close()
        await server.stop(None)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()
