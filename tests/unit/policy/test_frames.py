"""The table of bridges is kept while policies are enforced, and who cannot have it is told once."""

from __future__ import annotations

import asyncio
from typing import Any

from nodelib.command import CommandError, Completed
from policy.frames import PERIOD, Frames
from policy.plan import frames
from tests.fakes.clock import FakeClock


class Nft:
    """What was committed; `broken`: why nothing can be."""

    def __init__(self) -> None:
        self.committed: list[str] = []
        self.broken = ""

    async def run(self, argv: Any, *, stdin: bytes, **_: object) -> Completed:
        if self.broken:
            raise CommandError(argv, 1, self.broken.encode())
        self.committed.append(stdin.decode())
        return Completed(tuple(argv), 0, b"", b"")


def test_one_transaction_replaces_the_table() -> None:
    text = frames.transaction()
    assert text.startswith(frames.removal()) and text.count("table bridge nodewright-policy") == 3
    assert "ether type != { ip, ip6, arp }" in text and "== 0a:58:00:00:00:00" in text


async def test_it_is_written_again_and_again_until_somebody_else_enforces_policies() -> None:
    clock, nft = FakeClock(), Nft()
    kept = Frames(clock, lambda _: None, nft.run)
    task = asyncio.create_task(kept.run())
    await clock.advance(PERIOD * 2)
    assert nft.committed == [], "not before it is wanted"
    await kept.enforce()
    await clock.advance(PERIOD * 2 + 1)
    assert nft.committed == [frames.transaction()] * 3
    await kept.remove()
    await clock.advance(PERIOD * 2)
    assert nft.committed[3:] == [frames.removal()]
    task.cancel()


async def test_a_kernel_that_cannot_have_it_is_told_of_once() -> None:
    told: list[str] = []
    clock, nft = FakeClock(), Nft()
    kept = Frames(clock, told.append, nft.run)
    nft.broken = "Operation not supported"
    await kept.enforce()
    await kept.enforce()
    assert len(told) == 1 and "Operation not supported" in told[0] and kept.problem
    nft.broken = ""
    await kept.enforce()
    assert not kept.problem
