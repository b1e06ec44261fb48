"""When a node asks for a new certificate, before the old one is old."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace

from agent.certificates.model import KeyAndRequest, Leaf, Pair, Template
from agent.certificates.plan import Signer
from agent.certificates.work.rotation import CertificateManager, ManagedCertificate
from nodelib.json_values import Json
from nodelib.tasks import cancel_and_wait
from tests.fakes.clock import FakeClock
from tests.waiting import until

DAY = 86400.0


class Signs:
    """A signer, and the node's store: certificates of a day with what was asked for."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock, self.asked, self.path = clock, list[Template](), "/pki/current.pem"

    def make(self, wanted: Template) -> KeyAndRequest:
        self.asked.append(wanted)
        return KeyAndRequest(b"", b"")

    async def create(self, body: Json) -> str:
        return "csr"

    async def follow(self, name: str) -> AsyncGenerator[Json, None]:
        yield {"status": {"conditions": [{"type": "Approved"}], "certificate": "Y2VydA=="}}

    def current(self) -> Pair | None:
        return None

    def update(self, chain: bytes, key: bytes) -> Pair:
        now = self._clock.now()
        return Pair(self.path, Leaf(self.asked[-1], now, now + DAY), now)


async def test_a_new_address_of_the_node_means_a_new_serving_certificate() -> None:
    clock = FakeClock()
    signs, installed = Signs(clock), list[Pair]()
    wanted = Template("system:node:n1", ("system:nodes",), ("n1",), ("10.0.0.2",))
    moved = replace(wanted, addresses=("10.0.0.2", "10.0.0.3"))
    now_wanted = [wanted]

    async def on_new(found: Pair) -> None:
        installed.append(found)

    kept = ManagedCertificate(Signer.SERVING, signs, lambda: now_wanted[0], on_new)
    manager = CertificateManager(kept, signs, signs.make, clock, chance=0.5)
    task = asyncio.create_task(manager.run())
    try:
        await until(lambda: len(installed) == 1)
        await clock.advance(60)
        assert signs.asked == [wanted]
        now_wanted[0] = moved
        for _ in range(20):
            await clock.advance(10)
        await until(lambda: len(installed) == 2)
        assert installed[-1].leaf.subject == moved
    finally:
        await cancel_and_wait(task)
