"""Setting the machine's clock moves no renewal, no budget and no age of the agent's rooms (pods: pods/)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from agent.certificates.model import KeyAndRequest, Leaf, Pair, Template
from agent.certificates.plan import Signer
from agent.certificates.work.rotation import CertificateManager, ManagedCertificate
from agent.common.work.events import EventRecorder
from agent.images.plan.image_gc import ImageGcPolicy
from agent.volumes.model.sources import TokenRequest
from agent.volumes.work.tokens import TokenCache
from nodelib.json_values import Json
from nodelib.kube.times import format_rfc3339
from nodelib.tasks import cancel_and_wait
from tests.builders.pods import pod
from tests.fakes.clock import FakeClock, settle
from tests.unit.agent.images.test_image_gc_work import Store as ImageStore
from tests.unit.agent.images.test_image_gc_work import collector
from tests.unit.agent.probes.test_probes_work import Bench, probed

HOUR, DAY = 3600.0, 86400.0
STEPS = [pytest.param(step * sign, id=f"{sign * step:.0f} s") for step in (HOUR, 2 * DAY) for sign in (1, -1)]


class TokenApi:
    """An API server, whose clock nobody sets; its tokens live for an hour."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock, self.issued = clock, 0

    async def post(self, path: str, body: Json) -> Json:
        self.issued += 1
        expires = format_rfc3339(self._clock.steady() + HOUR)
        return {
            "status": {"token": f"t{self.issued}", "expirationTimestamp": expires},
            "spec": {"expirationSeconds": 3600},
        }


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("before", [pytest.param(True, id="wrong from the start"), pytest.param(False, id="later")])
async def test_a_token_is_renewed_at_80_percent_of_its_life(step: float, before: bool) -> None:
    clock = FakeClock()
    api = TokenApi(clock)
    tokens = TokenCache(api, clock)  # type: ignore[arg-type]  # only post() is used
    if before:
        clock.step(step)
    subject, request = pod(), TokenRequest("vault", 3600)
    assert await tokens.get(subject, request) == "t1"
    if not before:
        clock.step(step)
    await clock.advance(0.75 * HOUR)
    assert await tokens.get(subject, request) == "t1" and tokens.next_due() > 0
    await clock.advance(0.05 * HOUR)
    assert tokens.due() == {subject.uid} and tokens.next_due() == 0
    assert await tokens.get(subject, request) == "t2"


class Signs:
    """A signer and the node's store: certificates of ten hours by a clock that nobody sets."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock, self.made = clock, 0
        self.path = "/pki/current.pem"

    async def create(self, body: Json) -> str:
        return "csr"

    async def follow(self, name: str) -> AsyncGenerator[Json, None]:
        yield {"status": {"conditions": [{"type": "Approved"}], "certificate": "Y2VydA=="}}

    def current(self) -> Pair | None:
        return None

    def update(self, chain: bytes, key: bytes) -> Pair:
        self.made += 1
        now = self._clock.steady()
        return Pair(self.path, Leaf(Template("n"), now, now + 10 * HOUR), self._clock.now())


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("before", [pytest.param(True, id="wrong from the start"), pytest.param(False, id="later")])
async def test_a_node_s_certificate_is_renewed_in_time_and_not_over_and_over(step: float, before: bool) -> None:
    clock = FakeClock()
    signs = Signs(clock)

    async def on_new(found: Pair) -> None:
        return

    kept = ManagedCertificate(Signer.CLIENT, signs, lambda: Template("n"), on_new)
    manager = CertificateManager(kept, signs, lambda wanted: KeyAndRequest(b"", b""), clock, chance=0.5)
    if before:
        clock.step(step)
    task = asyncio.create_task(manager.run())
    try:
        await _until(clock, lambda: signs.made == 1)
        if not before:
            clock.step(step)
        await _advance(clock, 6.5 * HOUR)
        assert signs.made <= 2, "a step may renew it early, once"
        await _advance(clock, 3 * HOUR)
        assert 2 <= signs.made <= 3
    finally:
        await cancel_and_wait(task)


async def test_a_signer_that_leaves_out_what_is_wanted_is_not_asked_without_a_pause() -> None:
    clock = FakeClock()
    signs = Signs(clock)

    async def on_new(found: Pair) -> None:
        return

    kept = ManagedCertificate(Signer.SERVING, signs, lambda: Template("n", (), ("name",)), on_new)
    manager = CertificateManager(kept, signs, lambda wanted: KeyAndRequest(b"", b""), clock, chance=0.5)
    task = asyncio.create_task(manager.run())
    try:
        await _until(clock, lambda: signs.made == 1)
        for _ in range(50):
            await asyncio.sleep(0.002)
        assert signs.made == 1
        await _advance(clock, 0.5 * HOUR)
        assert signs.made > 1
    finally:
        await cancel_and_wait(task)


async def _advance(clock: FakeClock, seconds: float) -> None:
    # The store writes in a thread: with only one, what is run there last ends last.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    for _ in range(int(seconds // 300)):
        await clock.advance(300)
        for _ in range(3):
            await asyncio.to_thread(int)


async def _until(clock: FakeClock, what: Any) -> None:
    for _ in range(2000):
        if what():
            return
        await clock.advance(1)
        await asyncio.sleep(0.001)
    raise AssertionError("never")


class EventsApi:
    def __init__(self) -> None:
        self.posted: list[Json] = []

    async def post(self, path: str, body: Json) -> Json:
        self.posted.append(body)
        return body

    async def patch(self, path: str, body: Json, kind: str = "merge") -> Json:
        return body


@pytest.mark.parametrize("step", STEPS)
async def test_an_object_goes_on_having_events(step: float) -> None:
    clock, api = FakeClock(), EventsApi()
    events = EventRecorder(api, "n1", clock)
    task = asyncio.create_task(events.run())
    subject = pod().raw
    events.emit(subject, "Normal", "First", "first")
    clock.step(step)
    events.emit(subject, "Normal", "Second", "second")
    await settle()
    task.cancel()
    assert [one["reason"] for one in api.posted] == ["First", "Second"]
    assert api.posted[1]["lastTimestamp"] == format_rfc3339(clock.now()), "what is shown is the time of day"


@pytest.mark.parametrize("step", STEPS)
async def test_an_image_is_as_old_as_it_is(step: float) -> None:
    store = ImageStore("a", "b")
    store.used = ["a"]
    images, clock, _, _ = collector(store, ImageGcPolicy(max_age=3 * DAY))
    await images.collect()
    clock.step(step)
    await clock.advance(2 * DAY)
    await images.collect()
    assert set(store.images) == {"a", "b"}
    assert (await images.report()).at == clock.now()
    await clock.advance(1.5 * DAY)
    await images.collect()
    assert set(store.images) == {"a"}


@pytest.mark.parametrize("step", STEPS)
async def test_a_container_that_starts_after_a_step_is_new(step: float) -> None:
    """One that ran before the agent is probed at once, a new one after a period."""
    bench = Bench()
    task = asyncio.create_task(bench.keeper.run())
    bench.clock.step(step)
    bench.running(probed(livenessProbe={"exec": {"command": ["true"]}, "periodSeconds": 10}))
    await bench.clock.advance(9)
    assert bench.io.asked == []
    await bench.clock.advance(2)
    assert bench.io.asked
    await cancel_and_wait(task)
