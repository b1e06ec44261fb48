"""A DRA driver or a device plugin that does not answer holds the pods that use it, and no other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence

import pytest

from agent.common.model.pods import Pod
from agent.devices.model.devices import PluginOptions
from agent.devices.model.dra import ClaimRef
from agent.devices.work.devices import DeviceHooks, DeviceManager
from agent.devices.work.dra import DraManager, DraManagerDeps
from agent.plugins.model import PluginInfo
from nodelib.errors import NodewrightError, Permanent
from nodelib.json_values import Json
from nodelib.tasks import cancel_and_wait
from tests.builders.pods import container, pod
from tests.fakes.checkpoints import MemoryFiles
from tests.fakes.clock import FakeClock, settle
from tests.fakes.devices import FakeEndpoint

_BOX = container(resources={"claims": [{"name": "acc"}]})


def claiming(uid: str, claim: str) -> Pod:
    return pod(_BOX, meta={"uid": uid}, resourceClaims=[{"name": "acc", "resourceClaimName": claim}])


class Driver:
    """Answers unless it is called "hung"."""

    def __init__(self, name: str) -> None:
        self.name, self.endpoint = name, f"/p/{name}.sock"
        self.hangs = name == "hung"
        self.calls: list[str] = []

    async def prepare(self, claims: Sequence[ClaimRef]) -> dict[str, Json]:
        await self._called("prepare")
        return {one.uid: {"devices": []} for one in claims}

    async def unprepare(self, claims: Sequence[ClaimRef]) -> dict[str, Json]:
        await self._called("unprepare")
        return {one.uid: {} for one in claims}

    def is_connected(self) -> bool:
        return True

    def watch_health(self, service: str) -> AsyncIterator[list[Json]]:
        raise AssertionError("it offers no such service")

    async def _called(self, what: str) -> None:
        self.calls.append(what)
        if self.hangs:
            await asyncio.Event().wait()

    async def close(self) -> None:
        return None


class Claims:
    """The claim NAME-x is allocated from the driver NAME."""

    async def claim(self, namespace: str, name: str) -> Json | None:
        reserved = [{"uid": uid} for uid in "abcdefgh"]
        drivers = [{"driver": one} for one in name.split("-")[0].split("+")]
        status = {"reservedFor": reserved, "allocation": {"devices": {"results": drivers}}}
        return {"metadata": {"namespace": namespace, "name": name, "uid": f"uid-{name}"}, "status": status}

    async def delete_slices(self, driver: str) -> None:
        return None


class Dra:
    def __init__(self) -> None:
        self.drivers = {name: Driver(name) for name in ("hung", "good")}
        self.clock, self.files = FakeClock(), MemoryFiles()
        self.known: set[str] | None = set("abcdefgh")
        deps = DraManagerDeps(
            self.files, Claims(), lambda name, *_: self.drivers[name], self.clock, lambda: self.known, lambda: None
        )
        self.manager = DraManager(deps)

    async def start(self) -> Dra:
        for name, driver in self.drivers.items():
            await self.manager.drivers.register(PluginInfo("DRAPlugin", name, driver.endpoint, ("v1.DRAPlugin",)))
        return self


@pytest.fixture
async def dra() -> Dra:
    return await Dra().start()


async def _ends(*waits: asyncio.Task[None]) -> None:
    await cancel_and_wait(*waits)


async def test_a_hung_dra_driver_holds_only_pods_with_its_claims(dra: Dra) -> None:
    waits = [asyncio.create_task(dra.manager.prepare(claiming(uid, f"hung-{uid}"))) for uid in "abc"]
    waits.append(asyncio.create_task(dra.manager.prepare(claiming("d", "good+hung-d"))))
    await settle()
    assert len(dra.drivers["hung"].calls) == 4, "neither do its own pods wait for each other"
    await asyncio.wait_for(dra.manager.prepare(claiming("e", "good-e")), 5)
    await asyncio.wait_for(dra.manager.release("e"), 5)
    assert dra.drivers["good"].calls == ["prepare", "prepare", "unprepare"]
    await _ends(*waits)


async def test_a_hung_dra_driver_does_not_hold_the_release_of_other_pods(dra: Dra) -> None:
    dra.drivers["hung"].hangs = False
    for uid, claim in (("a", "hung-a"), ("b", "hung-b"), ("c", "good-c")):
        await dra.manager.prepare(claiming(uid, claim))
    dra.drivers["hung"].hangs = True
    dra.known = set()
    run = asyncio.create_task(dra.manager.run())
    await settle()
    await dra.clock.advance(61)
    await settle()
    assert dra.drivers["hung"].calls.count("unprepare") == 2 and "unprepare" in dra.drivers["good"].calls
    assert {state.ref.name for state in dra.manager.states} == {"hung-a", "hung-b"}
    await _ends(run)


async def test_pods_that_share_a_claim_prepare_it_once(dra: Dra) -> None:
    waits = [asyncio.create_task(dra.manager.prepare(claiming(uid, "good-x"))) for uid in "abc"]
    await asyncio.gather(*waits)
    assert dra.drivers["good"].calls == ["prepare"]
    await asyncio.gather(*(dra.manager.release(uid) for uid in "abc"))
    assert dra.drivers["good"].calls == ["prepare", "unprepare"] and not dra.manager.states


class HangingEndpoint(FakeEndpoint):
    async def allocate(self, ids: Iterable[str]) -> Json:
        self.calls.append(("allocate", sorted(ids)))
        await asyncio.Event().wait()
        return {}


class Devices:
    def __init__(self) -> None:
        self.active = set("abcdefgh")
        self.files, self.changes = MemoryFiles(), 0
        self.endpoints: dict[str, FakeEndpoint] = {}
        hooks = DeviceHooks(lambda: self.active, self._changed, lambda uid: None, lambda uid, name: None)
        self.manager = DeviceManager(self.files, self._dial, FakeClock(), hooks)

    def _changed(self) -> None:
        self.changes += 1

    def _dial(self, resource: str, socket: str) -> FakeEndpoint:
        made = (HangingEndpoint if "hung" in resource else FakeEndpoint)(resource, socket)
        made.wants = PluginOptions()
        self.endpoints[resource] = made
        return made

    async def plug(self, resource: str, *ids: str) -> None:
        await self.manager.connect("v1beta1", resource, "/d/x.sock")
        self.endpoints[resource].list_devices(*ids)
        await settle()


HUNG, GOOD = "acme.com/hung", "acme.com/good"


def asks(uid: str, **counts: int) -> Pod:
    limits: Json = {"limits": {f"acme.com/{name}": str(count) for name, count in counts.items()}}
    return pod(container(resources=limits), meta={"uid": uid})


@pytest.fixture
async def devices() -> Devices:
    made = Devices()
    await made.plug(HUNG, "h1", "h2", "h3")
    await made.plug(GOOD, "g1", "g2", "g3")
    return made


async def test_a_hung_device_plugin_holds_only_pods_with_its_devices(devices: Devices) -> None:
    """A pod that waits for the hung one keeps no other resource from being allocated either."""
    waits = [asyncio.create_task(devices.manager.admit(asks("a", hung=1), running=False))]
    waits.append(asyncio.create_task(devices.manager.admit(asks("b", good=1, hung=1), running=False)))
    await settle()
    for uid in "cd":
        await asyncio.wait_for(devices.manager.admit(asks(uid, good=1), running=False), 5)
    granted = [key.uid for key in devices.manager.allocations if key.resource == GOOD]
    assert sorted(granted) == ["b", "c", "d"]
    assert len({one for found in devices.manager.allocations.values() for one in found.ids}) == 3
    await _ends(*waits)


async def test_a_pod_whose_second_resource_fails_returns_the_first(devices: Devices) -> None:
    devices.endpoints[HUNG].__class__ = FakeEndpoint
    devices.endpoints[HUNG].refuses = "no"
    with pytest.raises(Permanent):
        await devices.manager.admit(asks("a", good=3, hung=1), running=False)
    await devices.manager.admit(asks("b", good=3), running=False)
    assert [key.uid for key in devices.manager.allocations] == ["b"]


async def test_a_plugin_that_repeats_itself_changes_nothing(devices: Devices) -> None:
    """Else a plugin that lists all the time makes the node write its checkpoint and status all the time."""
    written, changes = devices.files.writes, devices.changes
    for _ in range(100):
        devices.endpoints[GOOD].list_devices("g1", "g2", "g3")
    await settle(300)
    assert (devices.files.writes, devices.changes) == (written, changes)
    devices.endpoints[GOOD].list_devices("g1", "g2")
    await settle()
    assert devices.changes == changes + 1


@pytest.mark.parametrize(
    "resource",
    [
        pytest.param("acme.com/gpu\n", id="a line feed at the end"),
        pytest.param("acme.com/../gpu", id="a path"),
        pytest.param("acme.com/" + "x" * (1 << 20), id="a mebibyte"),
    ],
)
async def test_a_resource_that_is_no_name(devices: Devices, resource: str) -> None:
    with pytest.raises(NodewrightError, match="is invalid"):
        await devices.manager.connect("v1beta1", resource, "/d/x.sock")
    assert resource not in devices.manager.plugins
