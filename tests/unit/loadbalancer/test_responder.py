"""What a node answers for the addresses that it announces, and when it gives way."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from loadbalancer.model import Address
from loadbalancer.plan import frames
from loadbalancer.plan.frames import Claim, Question
from loadbalancer.plan.responder import ANNOUNCE_AT, HOLD, Responder

MAC, OTHER, CLIENT = b"\x02\0\0\0\0\x01", b"\x02\0\0\0\0\x02", b"\x02\0\0\0\0\x03"
V4, V6, NOT_OURS = ip_address("192.0.2.7"), ip_address("fd00::7"), ip_address("192.0.2.8")


def asked(address: Address, mac: bytes = CLIENT) -> bytes:
    return frames.probe(address, mac)


def claimed(address: Address, mac: bytes = OTHER) -> bytes:
    return frames.announcements(address, mac)[0]


def said(out: list[bytes]) -> list[Question | Claim]:
    return [one for frame in out for one in frames.read(frame)]


@pytest.fixture
def one() -> Responder:
    made = Responder()
    made.mac = MAC
    made.assign([V4, V6], 0.0)
    made.tick(0.0, certain=True)
    return made


@pytest.mark.parametrize("address", [V4, V6], ids=["ipv4", "ipv6"])
def test_it_answers_for_its_own_addresses_only(one: Responder, address: Address) -> None:
    assert said(one.handle([asked(address)], 1.0, certain=True)) == [Claim(address, MAC)]
    assert one.handle([asked(NOT_OURS)], 1.0, certain=True) == []
    assert one.handle([asked(address, MAC)], 1.0, certain=True) == [], "our own probe"
    one.assign([], 2.0)
    assert one.handle([asked(address)], 3.0, certain=True) == []


def test_what_is_new_is_announced_some_times_and_then_no_more() -> None:
    one = Responder()
    one.mac = MAC
    one.assign([V4], 10.0)
    times = [at for at in range(0, 2000) if said(one.tick(10.0 + at / 100, certain=True))]
    assert [time / 100 for time in times] == pytest.approx(ANNOUNCE_AT, abs=0.02)
    one.assign([V4], 40.0)
    assert one.tick(40.0, certain=True) == []
    one.announce_again(50.0)
    assert Claim(V4, MAC) in said(one.tick(50.0, certain=True))


def test_one_who_asks_again_and_again_gets_few_answers(one: Responder) -> None:
    flood = [asked(V4)] * 64
    assert sum(len(one.handle(flood, 1.0 + number / 1000, certain=True)) for number in range(100)) <= 11
    assert len(one.handle([asked(V4, bytes([2, 0, 0, 0, 9, 9]))], 1.1, certain=True)) == 1, "others still do"


def test_a_flood_of_ever_new_askers_is_bounded(one: Responder) -> None:
    flood = [asked(V4, number.to_bytes(6, "big")) for number in range(5000)]
    assert len(one.handle(flood, 1.0, certain=True)) <= 1024
    assert len(one.handle([asked(V4)], 1.2, certain=True)) == 1


def test_in_touch_with_the_api_server_it_defends_what_the_table_gives_it(one: Responder) -> None:
    assert Claim(V4, MAC) in said(one.handle([claimed(V4)], 1.0, certain=True))
    assert one.handle([claimed(V4)], 1.5, certain=True) == [], "once a second"
    assert one.conflicts == 1 and V4 in one.answered


def test_out_of_touch_it_asks_first_and_gives_way_to_a_claim(one: Responder) -> None:
    probes = said(one.tick(1.0, certain=False))
    assert Question(V4, MAC, None) in probes and Claim(V4, MAC) not in probes
    assert one.handle([asked(V4)], 1.0 + HOLD / 2, certain=False) == []
    late = said(one.tick(1.0 + HOLD, certain=False))
    assert Claim(V4, MAC) in late, "nobody else has it: whoever asked meanwhile is answered"
    assert one.handle([claimed(V4), asked(V4, b"\x02\0\0\0\0\x09")], 2.0, certain=False) == []
    assert one.answered == {V6} and one.given_way == {V4}


def test_out_of_touch_it_asks_every_second(one: Responder) -> None:
    times = [at / 10 for at in range(10, 60) if Question(V4, MAC, None) in said(one.tick(at / 10, certain=False))]
    assert times == pytest.approx([1.0, 2.0, 3.0, 4.0, 5.0], abs=0.11)


def test_a_process_that_was_stopped_does_not_answer_what_waited_meanwhile(one: Responder) -> None:
    """Its Lease is old when it wakes, and the claim of the new owner is among the frames."""
    out = said(one.handle([asked(V4), claimed(V4), asked(V4)], 100.0, certain=False))
    assert Claim(V4, MAC) not in out


def test_back_in_touch_it_announces_what_the_table_still_gives_it(one: Responder) -> None:
    one.handle([claimed(V4)], 1.0, certain=False)
    assert V4 not in one.answered
    assert Claim(V4, MAC) in said(one.tick(5.0, certain=True))
    assert V4 in one.answered
