"""What is read of DNS answers, and that no bytes make the reading fail or take long."""

from __future__ import annotations

import struct
import time
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.domains.plan.answers import answer
from policy.domains.plan.datagrams import received
from tests.builders.dns import A, address, alias, datagram, message, name, pointer, record

ASKED = "www.example.com"
AT = 12  # where the question's name begins


def decoded(data: bytes) -> dict[str, int] | None:
    found = answer(data)
    return None if found is None else {str(one): seconds for one, seconds in found.addresses}


@pytest.mark.parametrize(
    ("records", "wanted"),
    [
        pytest.param([address(ASKED, "192.0.2.1", 30)], {"192.0.2.1": 30}, id="an address"),
        pytest.param([address(pointer(AT), "192.0.2.1")], {"192.0.2.1": 60}, id="a pointer to the question"),
        pytest.param([address("WWW.Example.COM", "192.0.2.1")], {"192.0.2.1": 60}, id="letters of either case"),
        pytest.param(
            [address(ASKED, "192.0.2.1"), address(ASKED, "2001:db8::1", 5)],
            {"192.0.2.1": 60, "2001:db8::1": 5},
            id="both families",
        ),
        pytest.param(
            [alias(ASKED, "a.net", 20), alias("a.net", "b.net"), address("b.net", "192.0.2.1")],
            {"192.0.2.1": 20},
            id="aliases, and the shortest time on the way",
        ),
        pytest.param(
            [address("b.example.net", "192.0.2.1"), alias(ASKED, "b.example.net")],
            {"192.0.2.1": 60},
            id="records in another order",
        ),
        pytest.param([address(ASKED, "192.0.2.1", 1 << 31)], {"192.0.2.1": 0}, id="a time that is none"),
        pytest.param([address("evil.net", "192.0.2.1")], None, id="another name's address"),
        pytest.param([alias("evil.net", ASKED), address("evil.net", "192.0.2.1")], None, id="another name's alias"),
        pytest.param([alias(ASKED, "a.b"), alias("a.b", ASKED)], None, id="aliases in a circle"),
        pytest.param([alias(ASKED, "a.b")], None, id="an alias without its address"),
        pytest.param([record(ASKED, A, b"\1\2\3")], None, id="an address that is too short"),
        pytest.param([record(ASKED, A, b"\1\2\3\4", group=3)], None, id="another class"),
        pytest.param([record(ASKED, 16, b"\4text"), address(ASKED, "192.0.2.1")], {"192.0.2.1": 60}, id="other kinds"),
    ],
)  # fmt: skip
def test_only_what_the_question_leads_to_counts(records: list[bytes], wanted: dict[str, int] | None) -> None:
    assert decoded(message(ASKED, *records)) == wanted


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(message(ASKED, address(ASKED, "192.0.2.1"), flags=0x0100), id="a question"),
        pytest.param(message(ASKED, address(ASKED, "192.0.2.1"), flags=0x8183), id="a failure"),
        pytest.param(message(ASKED, address(ASKED, "192.0.2.1"), flags=0xA180), id="an update"),
        pytest.param(struct.pack(">HHHHHH", 1, 0x8180, 0, 1, 0, 0) + address(ASKED, "192.0.2.1"), id="no question"),
        pytest.param(struct.pack(">HHHHHH", 1, 0x8180, 2, 1, 0, 0) + message(ASKED)[12:] * 2, id="two questions"),
        pytest.param(message(b"\x0fwww.example.com\0", address(pointer(AT), "192.0.2.1")), id="dots in a label"),
        pytest.param(message(b"\x03\xff\xfea\3com\0", address(pointer(AT), "192.0.2.1")), id="bytes that no name has"),
        pytest.param(message(pointer(AT), address(pointer(AT), "192.0.2.1")), id="a pointer to itself"),
        pytest.param(message(b"\3www" + pointer(AT), address(pointer(AT), "192.0.2.1")), id="a pointer in a circle"),
        pytest.param(message(b"\0", address(b"\0", "192.0.2.1")), id="the root"),
        pytest.param(message(b"\x40" + b"a" * 64 + b"\0", address(pointer(AT), "192.0.2.1")), id="a label too long"),
        pytest.param(message(b"\1a" * 128 + b"\0", address(pointer(AT), "192.0.2.1")), id="a name too long"),
        pytest.param(b"", id="nothing"),
    ],
)  # fmt: skip
def test_what_is_no_answer_says_nothing(data: bytes) -> None:
    assert answer(data) is None


def test_of_an_answer_that_no_rule_is_about_the_records_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pods that asked for a name with 250 addresses took the loop, and the answers of others went unread."""
    asked: list[str] = []

    def refused(name: str) -> bool:
        asked.append(name)
        return False

    monkeypatch.setattr("policy.domains.plan.answers._read", lambda *_: pytest.fail("records were read"))
    assert answer(message(ASKED, address(ASKED, "192.0.2.1")), refused) is None
    assert asked == [ASKED]


def test_an_answer_that_was_cut_off_says_what_is_there() -> None:
    whole = message(ASKED, *[address(pointer(AT), f"192.0.2.{one}") for one in range(1, 5)])
    assert decoded(whole[:-6]) == {f"192.0.2.{one}": 60 for one in range(1, 4)}
    assert decoded(message(ASKED, address(pointer(AT), "192.0.2.1"), count=60_000)) == {"192.0.2.1": 60}


def test_a_name_has_what_follows_from_its_labels() -> None:
    found = answer(message(name("a-b_c.Example.com"), address(pointer(AT), "192.0.2.1")))
    assert found is not None and found.name == "a-b_c.example.com"


@given(st.binary(max_size=600))
def test_no_bytes_make_it_fail(rest: bytes) -> None:
    answer(rest)
    answer(message(ASKED, rest, count=50))
    received(rest)


@given(st.lists(st.integers(0, 255), max_size=200), st.integers(0, 400), st.data())
def test_a_changed_answer_never_speaks_of_another_name(noise: list[int], at: int, data: st.DataObject) -> None:
    """What was asked is what is answered for, whatever the records become."""
    records = alias(pointer(AT), "a.b"), address("a.b", "192.0.2.1"), address(ASKED, "192.0.2.2")
    good = bytearray(message(ASKED, *records))
    start = len(message(ASKED))
    for offset, one in enumerate(noise):
        place = start + (at + offset) % max(len(good) - start, 1)
        good[place] = one if data.draw(st.booleans()) else good[place]
    found = answer(bytes(good))
    assert found is None or found.name == ASKED


def test_the_longest_message_is_read_in_no_time() -> None:
    """Each record's name goes through as many labels as there may be, by pointers into one another."""
    chain = b"".join(b"\1a" + (pointer(AT + 4 * (one - 1)) if one else b"\0\0") for one in range(120))
    hostile = message(b"\1a\0", chain + b"".join(alias(pointer(AT + 470), b"\1a\0") for _ in range(4000)), count=65535)
    began = time.process_time()
    answer(hostile[:65535])
    assert time.process_time() - began < 0.5


def test_pointers_to_nothing_but_pointers_are_no_name() -> None:
    """Each of 500 names leads through 8000 pointers without a label: a server that hands on what it gets sends them."""
    start = len(message(ASKED)) + 12
    chain = b"".join(pointer(start + 2 * (one - 1) if one else AT) for one in range(8000))
    last = pointer(start + 2 * 7999)
    hostile = message(ASKED, record(pointer(AT), 16, chain), *[alias(last, last) for _ in range(500)])
    assert len(hostile) < 65535
    began = time.process_time()
    answer(hostile)
    assert time.process_time() - began < 0.2


def test_a_name_of_as_many_labels_as_there_may_be_is_read() -> None:
    asked = ".".join("a" * 127)
    at = len(message(asked)) + 12
    parts = b"".join(b"\1a" + (pointer(at + 4 * (one - 1)) if one else b"\0\0") for one in range(127))
    owner = pointer(at + 4 * 126)
    assert decoded(message(asked, record(pointer(AT), 16, parts), address(owner, "192.0.2.1"))) == {"192.0.2.1": 60}


@pytest.mark.parametrize(("source", "target"), [("10.96.0.10", "10.244.0.11"), ("fd00::a", "fd00:244::11")])
def test_a_datagram_has_a_receiver_and_a_content(source: str, target: str) -> None:
    packet = datagram(source, target, b"content")
    assert received(packet) == (ip_address(target), b"content")
    assert received(packet[:-1]) is None, "cut off"
    assert received(packet + b"padding") == (ip_address(target), b"content")


@pytest.mark.parametrize(
    "packet",
    [
        pytest.param(datagram("10.0.0.1", "10.0.0.2", b"x").replace(b"\x40\x11", b"\x40\x06", 1), id="TCP"),
        pytest.param(b"\x45" + bytes(5) + b"\x20\x00" + datagram("10.0.0.1", "10.0.0.2", b"x")[8:], id="a fragment"),
        pytest.param(b"\x44" + datagram("10.0.0.1", "10.0.0.2", b"x")[1:], id="a header that is too short"),
        pytest.param(datagram("10.0.0.1", "10.0.0.2", b"")[:24] + b"\0\7\0\0", id="a length that is too short"),
    ],
)
def test_what_is_no_datagram(packet: bytes) -> None:
    assert received(packet) is None
