"""ARP and neighbour discovery as bytes, and the filters that the kernel runs on them."""

from __future__ import annotations

import struct
from ipaddress import IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadbalancer.model import Address
from loadbalancer.plan import filters, frames
from loadbalancer.plan.filters import Instruction
from loadbalancer.plan.frames import Claim, Question
from loadbalancer.plan.pool import parse

MAC, OTHER = bytes.fromhex("02000000000a"), bytes.fromhex("02000000000b")
V4, V6 = ip_address("192.0.2.7"), ip_address("fd00::12:3456")
CLIENT4, CLIENT6 = ip_address("192.0.2.99"), ip_address("fd00::99")


def arp(operation: int, mac: bytes, sender: Address, target: Address) -> bytes:
    head = b"\xff" * 6 + mac + struct.pack("!H", 0x0806)
    body = struct.pack("!HHBBH", 1, 0x0800, 6, 4, operation) + mac + sender.packed + bytes(6) + target.packed
    return head + body + bytes(18)  # Ethernet pads to 60 bytes


def solicitation(mac: bytes, sender: Address, target: Address, hops: int = 255) -> bytes:
    body = struct.pack("!BBHI", 135, 0, 0, 0) + target.packed + b"\x01\x01" + mac
    head = struct.pack("!IHBB", 6 << 28, len(body), 58, hops) + sender.packed + frames.ALL_NODES.packed
    return b"\x33\x33\xff\x12\x34\x56" + mac + struct.pack("!H", 0x86DD) + head + body


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        pytest.param(arp(1, OTHER, CLIENT4, V4), [Claim(CLIENT4, OTHER), Question(V4, OTHER, CLIENT4)], id="arp"),
        pytest.param(arp(1, OTHER, ip_address("0.0.0.0"), V4), [Question(V4, OTHER, None)], id="arp-probe"),
        pytest.param(arp(1, OTHER, V4, V4), [Claim(V4, OTHER)], id="gratuitous-request"),
        pytest.param(arp(2, OTHER, V4, CLIENT4), [Claim(V4, OTHER)], id="arp-reply"),
        pytest.param(arp(3, OTHER, V4, CLIENT4), [], id="rarp"),
        pytest.param(solicitation(OTHER, CLIENT6, V6), [Question(V6, OTHER, CLIENT6)], id="solicitation"),
        pytest.param(solicitation(OTHER, ip_address("::"), V6), [Question(V6, OTHER, None)], id="ndp-probe"),
        pytest.param(solicitation(OTHER, CLIENT6, V6, hops=64), [], id="from-behind-a-router"),
        pytest.param(b"", [], id="nothing"),
    ],
)
def test_read(frame: bytes, expected: list[Question | Claim]) -> None:
    assert frames.read(frame) == expected


@pytest.mark.parametrize("address", [V4, V6], ids=["ipv4", "ipv6"])
def test_what_we_write_is_a_claim_to_others(address: Address) -> None:
    asker = CLIENT4 if address.version == 4 else CLIENT6
    for frame in frames.announcements(address, MAC):
        assert frames.read(frame) == [Claim(address, MAC)]
        assert frame[6:12] == MAC and frame[0] & 1, "to all"
    answer = frames.answer(Question(address, OTHER, asker), MAC)
    assert answer[:12] == OTHER + MAC and frames.read(answer) == [Claim(address, MAC)]
    assert frames.read(frames.answer(Question(address, OTHER, None), MAC)) == [Claim(address, MAC)]
    assert frames.read(frames.probe(address, MAC)) == [Question(address, MAC, None)]


def test_the_checksum_of_icmpv6_is_right() -> None:
    packet = frames.announcements(V6, MAC)[0][14:]
    body = packet[40:]
    pseudo = packet[8:40] + struct.pack("!II", len(body), 58)
    total = sum(struct.unpack(f"!{(len(pseudo) + len(body)) // 2}H", pseudo + body))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    assert total == 0xFFFF


def test_the_group_in_which_an_address_is_asked_for() -> None:
    assert frames.solicited_node(IPv6Address("fd00::12:3456")) == IPv6Address("ff02::1:ff12:3456")


@given(st.binary(max_size=120), st.sampled_from([b"\x08\x06", b"\x86\xdd", b""]))
def test_anything_may_arrive(rest: bytes, kind: bytes) -> None:
    for one in frames.read(bytes(12) + kind + rest):
        assert len(one.mac) == 6


def runs(program: list[Instruction], frame: bytes) -> bool:
    """What the kernel does with the instructions that we use; outside of the frame it drops."""
    place = accumulator = 0
    while True:
        code, true, false, value = program[place]
        place += 1
        if code == 0x06:
            return value > 0
        if code in (0x20, 0x30):
            part = frame[value : value + (4 if code == 0x20 else 1)]
            if len(part) < (4 if code == 0x20 else 1):
                return False
            accumulator = int.from_bytes(part, "big")
        elif code == 0x54:
            accumulator &= value
        else:
            met = {0x15: accumulator == value, 0x35: accumulator >= value, 0x25: accumulator > value}[code]
            place += true if met else false


POOL = parse(["192.0.2.7-192.0.2.9", "198.51.100.1", "fd00::12:3400-fd00::12:34ff", "fd01::1"])


@pytest.mark.parametrize(
    ("frame", "passes"),
    [
        (arp(1, OTHER, CLIENT4, V4), True),
        (arp(1, OTHER, CLIENT4, ip_address("192.0.2.9")), True),
        (arp(1, OTHER, CLIENT4, ip_address("192.0.2.10")), False),
        (arp(1, OTHER, CLIENT4, ip_address("192.0.2.6")), False),
        (arp(1, OTHER, CLIENT4, ip_address("198.51.100.1")), True),
        (arp(2, OTHER, V4, CLIENT4), True),
    ],
)
def test_arp_filter(frame: bytes, passes: bool) -> None:
    assert runs(filters.arp(POOL), frame) is passes


@pytest.mark.parametrize(
    ("frame", "passes"),
    [
        (solicitation(OTHER, CLIENT6, V6), True),
        (solicitation(OTHER, CLIENT6, ip_address("fd00::12:34ff")), True),
        (solicitation(OTHER, CLIENT6, ip_address("fd00::12:3500")), False),
        (solicitation(OTHER, CLIENT6, ip_address("fd01::1")), True),
        (solicitation(OTHER, CLIENT6, ip_address("fd01::2")), False),
        (solicitation(OTHER, CLIENT6, V6, hops=64), False),
        (frames.announcements(V6, OTHER)[0], True),
        (solicitation(OTHER, CLIENT6, V6).replace(b"\x87\0\0\0", b"\x80\0\0\0"), False),
    ],
)
def test_ndp_filter(frame: bytes, passes: bool) -> None:
    assert runs(filters.ndp(POOL), frame) is passes


@given(st.integers(0, (1 << 128) - 1), st.integers(0, 1 << 20), st.integers(-2, 1 << 21))
def test_the_ndp_filter_lets_a_whole_range_through(first: int, size: int, at: int) -> None:
    last = min(first + size, (1 << 128) - 1)
    pool = parse(["fd00::1"])
    one = type(pool.ranges[0])(IPv6Address(first), IPv6Address(last))
    target = IPv6Address(max(0, min(first + at, (1 << 128) - 1)))
    if not target.is_multicast and target in one:
        assert runs(filters.ndp(type(pool)((one,))), solicitation(OTHER, CLIENT6, target))
