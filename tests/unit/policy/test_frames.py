"""The table of bridges is kept while policies are enforced, and who cannot have it is told once."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence
from ipaddress import ip_address

from nodelib.addresses import hardware_address
from nodelib.command import CommandError
from nodelib.netlink.families import BRIDGE
from nodelib.nft.edge import NftError
from nodelib.nft.wire import Element
from policy.frames import PERIOD, Frames
from policy.model import Address, Name
from policy.plan import frames
from tests.fakes.clock import FakeClock


class Nft:
    """What was committed as text, and the elements that the table has since. `broken`: why nothing can be committed."""

    def __init__(self) -> None:
        self.committed: list[str] = []
        self.added: list[Element] = []
        self.there, self.broken = False, ""

    async def text(self, transaction: str) -> None:
        await asyncio.sleep(0)  # a process takes a while
        if self.broken:
            raise CommandError(("nft",), 1, self.broken.encode())
        self.committed.append(transaction)
        self.there, self.added = transaction != frames.removal(), []

    async def write(self, delete: Sequence[Element], add: Sequence[Element]) -> None:
        await asyncio.sleep(0)
        if self.broken or not self.there:
            raise NftError("no such table", family=BRIDGE, code=errno.ENOENT)
        assert not delete
        self.added += add


def test_one_transaction_replaces_the_table() -> None:
    text = frames.transaction({})
    assert text.startswith(frames.removal()) and text.count("table bridge nodewright-policy") == 3
    assert "ether type != { ip, ip6, arp }" in text and "== 0a:58:00:00:00:00" in text


async def test_it_is_written_again_and_again_until_somebody_else_enforces_policies() -> None:
    clock, nft = FakeClock(), Nft()
    kept = Frames(nft, clock, lambda _: None)
    task = asyncio.create_task(kept.run())
    await clock.advance(PERIOD * 2)
    assert nft.committed == [], "not before it is wanted"
    await kept.enforce()
    await clock.advance(PERIOD * 2 + 1)
    assert nft.committed == [frames.transaction({})] * 3
    await kept.remove()
    await clock.advance(PERIOD * 2)
    assert nft.committed[3:] == [frames.removal()]
    task.cancel()


async def test_a_kernel_that_cannot_have_it_is_told_of_once() -> None:
    reports: list[str] = []
    clock, nft = FakeClock(), Nft()
    kept = Frames(nft, clock, reports.append)
    nft.broken = "Operation not supported"
    await kept.enforce()
    await kept.enforce()
    assert len(reports) == 1 and "Operation not supported" in reports[0] and kept.problem
    nft.broken = ""
    await kept.enforce()
    assert not kept.problem


ONE: tuple[Address, ...] = (ip_address("10.244.0.11"), ip_address("fd00:244::11"))
MAC = hardware_address(ONE[0])


async def test_what_the_runtime_has_given_a_pod_is_its_own() -> None:
    nft = Nft()
    kept = Frames(nft, FakeClock(), lambda _: None)
    await kept.hold(Name("a", "one"), ONE)
    assert nft.committed == [], "not before it is wanted"
    await kept.enforce()
    assert nft.committed[-1] == frames.transaction({MAC: ONE})
    assert f"{MAC} . 0xaf4000b" in nft.committed[-1] and f"{MAC} . 0xfd000244{'11':0>24}" in nft.committed[-1]
    await kept.hold(Name("a", "one"), ONE)
    assert len(nft.committed) == 1, "nothing has changed"
    kept.seen(Name("b", "forger"), (ONE[0], ip_address("fd00:244::99")))
    await kept.enforce()
    assert nft.committed[-1] == frames.transaction({MAC: ONE})
    kept.gone(Name("a", "one"))
    await kept.enforce()
    assert nft.committed[-1] == frames.transaction({MAC: ONE}), "its processes may go on"
    other = (ONE[0], ip_address("fd00:244::12"))
    await kept.hold(Name("a", "two"), other)
    assert nft.committed[-1] == frames.transaction({MAC: other})


async def test_a_pod_that_starts_waits_for_its_own_elements_only() -> None:
    nft = Nft()
    kept = Frames(nft, FakeClock(), lambda _: None)
    await kept.enforce()
    await kept.hold(Name("a", "one"), ONE)
    assert nft.committed == [frames.transaction({})] and nft.added == frames.elements({MAC: ONE})
    nft.there = False  # somebody has removed the table
    two = (ip_address("10.244.0.12"),)
    await kept.hold(Name("a", "two"), two)
    assert nft.committed[1:] == [frames.transaction({MAC: ONE, hardware_address(two[0]): two})] and not nft.added


async def test_pods_that_come_together_are_written_together() -> None:
    nft = Nft()
    kept = Frames(nft, FakeClock(), lambda _: None)
    await kept.enforce()
    pods = [(Name("a", str(number)), (ip_address(f"10.244.1.{number}"),)) for number in range(100)]
    await asyncio.gather(*(kept.hold(name, addresses) for name, addresses in pods))
    assert len(nft.committed) == 1 and len(nft.added) == 200
    await kept.enforce()
    assert nft.committed[-1].count(" . 0xaf401") == 100


async def test_the_whole_table_is_written_when_that_was_asked_for_meanwhile() -> None:
    nft = Nft()
    kept = Frames(nft, FakeClock(), lambda _: None)
    await kept.enforce()
    await asyncio.gather(kept.hold(Name("a", "one"), ONE), kept.enforce())
    assert nft.committed[-1] == frames.transaction({MAC: ONE}) and len(nft.committed) == 2


async def test_of_what_has_gone_the_latest_is_known() -> None:
    nft = Nft()
    kept = Frames(nft, FakeClock(), lambda _: None)
    for number in range(3000):
        name = Name("a", str(number))
        await kept.hold(name, (ip_address((10 << 24) + number),))
        kept.gone(name)
    await kept.hold(Name("a", "stays"), ONE)
    await kept.enforce()
    assert nft.committed[-1].count(" . 0x") == 1024 + 2
