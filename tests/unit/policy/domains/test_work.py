"""An answer waits until its addresses are written; what could not be written is not known."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from ipaddress import ip_address

import pytest

from nodelib.firewall.objects import Family
from nodelib.netlink.framing import ATTRIBUTE
from nodelib.nft import wire
from nodelib.nft.edge import NftError
from nodelib.nft.wire import Message
from policy.domains.work import Domains
from policy.model import DomainNames
from policy.plan import layout
from policy.plan.entries import KNOWN
from policy.plan.program import Program
from tests.builders import dns
from tests.fakes.clock import FakeClock
from tests.waiting import until

POD, SERVER = "10.244.0.11", "10.96.0.10"
NAMES = DomainNames(("*.example.com",))
SET = layout.names_name(NAMES)


class Table:
    """`fail`: the next transactions are refused, `refused`: those with it in them; they wait for `may`."""

    def __init__(self) -> None:
        self.batches: list[list[Message]] = []
        self.there: dict[str, set[bytes]] = {}
        self.fail, self.refused = False, b""
        self.may = asyncio.Event()
        self.may.set()

    async def commit(self, batch: list[Message]) -> None:
        await self.may.wait()
        if self.fail or (self.refused and any(self.refused in one.body for one in batch)):
            raise NftError("no such set", family=Family.IPV4)
        self.batches.append(batch)

    async def elements(self, sets: Iterable[str]) -> dict[str, set[bytes]] | None:
        return {name: self.there[name] for name in sets}

    async def sets(self) -> list[str]:
        return list(self.there)


class World:
    def __init__(self) -> None:
        self.table, self.clock = Table(), FakeClock()
        self.domains = Domains({Family.IPV4: self.table}, lambda address: (address,), self.clock)
        program = Program(Family.IPV4, names={SET: NAMES})
        self.domains.synced({Family.IPV4: program})

    def got(self, name: str, *addresses: str, pod: str = POD) -> asyncio.Task[None] | None:
        """The pod gets an answer. None: it goes on at once."""
        payload = dns.message(name, *[dns.address(name, one) for one in addresses or ("192.0.2.1",)])
        found = self.domains.learn(dns.datagram(SERVER, pod, payload))
        return None if found is None else asyncio.ensure_future(found)


@pytest.fixture
async def world() -> World:
    return World()


async def test_an_answer_without_news_goes_on_at_once(world: World) -> None:
    assert world.got("example.org") is None
    assert world.domains.learn(b"no packet") is None
    first = world.got("www.example.com")
    assert first is not None
    await first
    assert world.got("www.example.com") is None
    assert len(world.table.batches) == 1


async def test_an_answer_waits_for_its_addresses_also_if_another_has_brought_them(world: World) -> None:
    world.table.may.clear()
    first, second = world.got("www.example.com"), world.got("www.example.com")
    assert first is not None and second is not None
    await asyncio.sleep(0)
    assert not first.done() and not second.done()
    world.table.may.set()
    await asyncio.gather(first, second)
    assert len(world.table.batches) == 1


async def test_while_the_kernel_is_busy_answers_gather_and_those_of_one_pod_are_bounded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flood of answers, each with other addresses: they made a transaction each, and waited for all before them."""
    monkeypatch.setattr("policy.domains.work._MOST_WAITING", 20)
    world.table.may.clear()
    first = world.got("a.example.com")
    await asyncio.sleep(0)
    flood = [world.got(f"b{n}.example.com", *[f"192.0.{n + 3}.{one}" for one in range(10)]) for n in range(100)]
    other = world.got("c.example.com", pod="10.244.0.12")
    assert first is not None and other is not None
    assert [one is None for one in flood] == [False] * 2 + [True] * 98
    assert (world.domains.memory.count, world.domains.memory.left_out) == (22, 98)
    world.table.may.set()
    await asyncio.gather(first, other, *filter(None, flood))
    assert len(world.table.batches) == 2
    assert world.got("d.example.com", "198.51.100.1") is not None


async def test_what_one_pod_has_learnt_and_the_kernel_refuses_does_not_stop_others(world: World) -> None:
    world.table.may.clear()
    first = world.got("a.example.com")
    await asyncio.sleep(0)
    second = world.got("b.example.com", "192.0.2.2", pod="10.244.0.12")
    third = world.got("b.example.com", "192.0.2.2", pod="10.244.0.13")
    assert first is not None and second is not None and third is not None
    world.table.refused = ip_address("10.244.0.12").packed
    world.table.may.set()
    await asyncio.gather(first, second, third)
    known = {str(one.key.pod) for one in world.domains.memory.all(0)}
    assert known == {POD, "10.244.0.13"} and len(world.table.batches) == 2


async def test_who_waits_for_an_address_to_be_forgotten_may_leave(world: World) -> None:
    """Cancelled in the middle, half a request on the netlink socket would be taken for the next one's."""
    learnt = world.got("www.example.com")
    assert learnt is not None
    await learnt
    world.table.may.clear()
    leaving = asyncio.create_task(world.domains.forget([ip_address(POD)]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    world.table.may.set()
    await until(lambda: len(world.table.batches) == 2)


async def test_an_answer_is_not_held_for_ever(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("policy.domains.work.HELD", 0.01)
    world.table.may.clear()
    held = world.got("www.example.com")
    assert held is not None
    await held
    assert not world.table.batches
    world.table.may.set()


async def test_what_could_not_be_written_is_asked_for_again(world: World) -> None:
    world.table.fail = True
    first = world.got("www.example.com")
    assert first is not None
    await first
    assert world.domains.memory.count == 0
    world.table.fail = False
    second = world.got("www.example.com")
    assert second is not None
    await second
    assert world.domains.memory.count == 1 and len(world.table.batches) == 1


async def test_what_an_earlier_run_has_left_is_known_and_kept_in_a_new_table(world: World) -> None:
    raw = wire.plain(ip_address(POD).packed + ip_address("192.0.2.1").packed)
    expiring = b"".join((ATTRIBUTE.pack(12, 5), (1_000_000).to_bytes(8, "big")))
    long = b"".join((ATTRIBUTE.pack(12, 5), ((KNOWN + 1000) * 1000).to_bytes(8, "big")))
    other = wire.plain(ip_address(POD).packed + ip_address("192.0.2.2").packed)
    known = layout.known_name(SET)
    world.table.there = {SET: {raw + expiring}, known: {raw + long, other + expiring}, "peer-1": set()}
    await world.domains.load()
    assert world.domains.memory.count == 2
    left = {str(one.key.address): one.seconds for one in world.domains.memory.all(world.clock.monotonic())}
    assert left == {"192.0.2.1": 1000.0, "192.0.2.2": 1000.0 - KNOWN}
    kept = world.domains.kept(Program(Family.IPV4, names={SET: NAMES}))
    sets = [name for one in kept for name in (SET, known) if name.encode() in one.body]
    assert sorted(sets) == sorted([SET, known])
    assert not world.domains.kept(Program(Family.IPV4))


async def test_a_pod_that_is_gone_takes_along_what_it_has_learnt(world: World) -> None:
    first = world.got("www.example.com")
    assert first is not None
    await first
    await world.domains.forget([ip_address(POD)])
    assert world.domains.memory.count == 0
    assert wire.DELETE_ELEMENTS in [one.kind for one in world.table.batches[-1]]
    world.domains.synced({})
    assert world.got("www.example.com") is None, "no rule has the name any more"
