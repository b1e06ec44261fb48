"""What pods have learnt: for whom, for how long, and that nobody's memory grows without bounds."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from nodelib.firewall.objects import Family
from nodelib.nft import wire
from policy.domains.model import Answer, Key, Learnt
from policy.domains.plan import learnt, messages
from policy.domains.plan.learnt import FLOOR, GRACE, LONGEST, Memory
from policy.model import Address, DomainNames
from policy.plan.entries import KNOWN

POD, POD6, OTHER = map(ip_address, ("10.244.0.11", "fd00:244::11", "10.244.0.12"))
SETS = {"names-1": DomainNames(("*.example.com",)), "names-2": DomainNames(("www.example.com", "example.org"))}


def said(name: str, *addresses: str, seconds: int = 100) -> Answer:
    return Answer(name, tuple((ip_address(one), seconds) for one in addresses))


def learn(memory: Memory, answer: Answer, now: float = 0.0, pod: tuple[Address, ...] = (POD, POD6)) -> list[Learnt]:
    news, gone = memory.learn(answer, pod, SETS, now)
    assert not gone
    return news


def test_each_set_that_has_the_name_gets_the_addresses_of_each_family() -> None:
    news = learn(Memory(), said("www.example.com", "192.0.2.1", "2001:db8::1"))
    assert {(one.key.set, str(one.key.pod), str(one.key.address)) for one in news} == {
        (name, str(pod), address)
        for name in SETS
        for pod, address in ((POD, "192.0.2.1"), (POD6, "2001:db8::1"))
    }  # fmt: skip
    assert not learn(Memory(), said("example.com", "192.0.2.1")), "no set has this name"
    assert not learn(Memory(), said("www.example.com", "2001:db8::1"), pod=(POD,)), "the pod has no IPv6"


@pytest.mark.parametrize(
    ("seconds", "lasts"), [(0, FLOOR), (1, FLOOR), (100, 100), (2**31 - 1, LONGEST)], ids=["0", "1", "100", "longest"]
)
def test_an_address_lasts_as_long_as_the_answer_within_bounds(seconds: int, lasts: float) -> None:
    (one,) = learn(Memory(), said("example.org", "192.0.2.1", seconds=seconds))
    assert one.seconds == lasts + GRACE


def test_only_what_lasts_longer_is_written_again() -> None:
    memory = Memory()
    answer = said("example.org", "192.0.2.1")
    assert learn(memory, answer, 0)
    assert not learn(memory, answer, GRACE - 1), "a query each second costs no write"
    assert not learn(memory, said("example.org", "192.0.2.1", seconds=40), 50), "a cache counts down"
    assert learn(memory, answer, GRACE + 1)
    assert memory.count == 1


def test_a_pod_that_asks_for_ever_more_names_loses_its_own_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learnt, "MOST_OF_POD", 10)
    memory = Memory()
    learn(memory, said("example.org", "192.0.2.99"), pod=(OTHER,))
    gone: list[Key] = []
    for number in range(50):
        gone += memory.learn(said("example.org", f"192.0.2.{number}"), (POD,), SETS, 0)[1]
    assert [str(one.address) for one in gone] == [f"192.0.2.{number}" for number in range(40)]
    assert {str(one.key.address) for one in memory.all(0)} == {f"192.0.2.{n}" for n in (*range(40, 50), 99)}
    assert memory.count == 11


def test_one_answer_with_more_addresses_than_there_is_room_leaves_the_latest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learnt, "MOST_OF_POD", 10)
    memory = Memory()
    news, gone = memory.learn(said("example.org", *[f"192.0.2.{n}" for n in range(30)]), (POD,), SETS, 0)
    assert {one.key for one in news} == {one.key for one in memory.all(0)} and len(news) == 10
    assert len(gone) == 20 and not {one.key for one in news} & set(gone)
    news, gone = memory.learn(said("example.org", *[f"192.0.2.{n}" for n in range(30)], seconds=200), (POD,), SETS, 0)
    assert {one.key for one in news} == {one.key for one in memory.all(0)}, "what has gone and come again is there"


def test_what_all_pods_have_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learnt, "MOST", 3)
    memory = Memory()
    learn(memory, said("example.org", *[f"192.0.2.{number}" for number in range(10)]))
    assert (memory.count, memory.left_out) == (3, 7)


def test_who_has_most_makes_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pods of one namespace had all there was for a day, and those of others were allowed nothing new."""
    monkeypatch.setattr(learnt, "MOST", 20)
    memory, many = Memory(), [ip_address(f"10.244.1.{number}") for number in range(4)]
    for pod in many:
        learn(memory, said("example.org", *[f"192.0.2.{number}" for number in range(5)]), pod=(pod,))
    gone: list[Key] = []
    for number in range(6):
        news, went = memory.learn(said("example.org", f"198.51.100.{number}"), (OTHER,), SETS, 0)
        assert len(news) == (1 if number < 4 else 0)
        gone += went
    assert sorted(str(one.pod) for one in gone) == sorted(map(str, many)), "one of each"
    assert memory.count == 20 and memory.left_out == 2
    assert len({one.key for one in memory.all(0)} & set(gone)) == 0


def test_what_goes_goes_before_what_comes() -> None:
    """The kernel counts: a full set takes nothing before something has left it."""
    gone, fresh = (Key("names-1", POD, ip_address(f"192.0.2.{number}")) for number in (1, 2))
    batch = messages.written(Family.IPV4, [Learnt(fresh, 30)], [gone])
    at = [(one.kind, fresh.address.packed in one.body) for one in batch]
    assert at.index((wire.DELETE_ELEMENTS, False)) < at.index((wire.NEW_ELEMENTS, True))


def test_an_expired_address_is_kept_for_its_connections_and_then_forgotten() -> None:
    memory = Memory()
    learn(memory, said("example.org", "192.0.2.1"))
    (one,) = memory.all(1000)
    assert -KNOWN < one.seconds < 0
    _, gone = memory.learn(said("example.org", "192.0.2.2"), (POD,), SETS, KNOWN + 200)
    assert [str(one.address) for one in gone] == ["192.0.2.1"] and memory.count == 1


def test_a_pod_s_successor_has_nothing_of_it() -> None:
    memory = Memory()
    learn(memory, said("example.org", "192.0.2.1", "2001:db8::1"))
    learn(memory, said("example.org", "192.0.2.1"), pod=(OTHER,))
    assert {one.pod for one in memory.forget((POD, POD6))} == {POD, POD6}
    assert [one.key.pod for one in memory.all(0)] == [OTHER] and memory.count == 1


def test_sets_that_are_gone_are_forgotten() -> None:
    memory = Memory()
    learn(memory, said("www.example.com", "192.0.2.1"))
    memory.forget_sets(["names-2"])
    assert [one.key.set for one in memory.all(0)] == ["names-2"] and memory.count == 1
    assert [one.key.set for one in learn(memory, said("www.example.com", "192.0.2.1"))] == ["names-1"]


@pytest.mark.parametrize("family", list(Family))
def test_elements_are_read_as_they_were_written(family: Family) -> None:
    pod, address = (POD, "192.0.2.1") if family is Family.IPV4 else (POD6, "2001:db8::1")
    key = Key("names-1", pod, ip_address(address))
    raw = wire.plain(key.pod.packed + key.address.packed)
    assert messages.read(family, "names-1", [raw]) == [Learnt(key, 0)]
    assert messages.written(family, [], []) == []
    added, removed, timed = messages.written(family, [Learnt(key, 30)], [])[0::2]
    assert (added.kind, removed.kind, timed.kind) == (wire.NEW_ELEMENTS, wire.DELETE_ELEMENTS, wire.NEW_ELEMENTS)
