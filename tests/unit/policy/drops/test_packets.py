"""The first bytes of packets, which anybody may write: addresses, ports, and who is the server."""

from __future__ import annotations

import struct
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.drops.model import Flow, Packet
from policy.drops.plan import packets
from policy.model import Address, Direction
from tests.builders.packets import ACK, ICMP, SYN, SYN_ACK, TCP, UDP, packet

A, B, A6, B6 = "10.0.0.1", "10.0.0.2", "fd00::1", "fd00::2"


def addresses(*texts: str) -> frozenset[Address]:
    return frozenset(map(ip_address, texts))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(packet(A, B), (A, B, TCP, 40000, 80, False), id="TCP"),
        pytest.param(packet(A6, B6), (A6, B6, TCP, 40000, 80, False), id="TCP over IPv6"),
        pytest.param(packet(A, B, flags=SYN_ACK), (A, B, TCP, 40000, 80, True), id="the server's answer"),
        pytest.param(packet(A, B, UDP, (1, 53)), (A, B, UDP, 1, 53, False), id="UDP"),
        pytest.param(packet(A, B, ICMP), (A, B, ICMP, 0, 0, False), id="no ports"),
        pytest.param(packet(A, B)[:22], (A, B, TCP, 0, 0, False), id="cut within the ports"),
        pytest.param(packet(A, B)[:26], (A, B, TCP, 40000, 80, False), id="cut before the flags"),
    ],
)
def test_a_packet(data: bytes, expected: tuple[str, str, int, int, int, bool]) -> None:
    source, target, protocol, source_port, port, answer = expected
    wanted = Packet(ip_address(source), ip_address(target), protocol, source_port, port, answer)
    assert packets.packet(data) == wanted


@pytest.mark.parametrize("data", [b"", b"\x45", bytes(40), packet(A, B)[:19], packet(A6, B6)[:39], b"\x41" + bytes(40)])
def test_what_is_no_packet(data: bytes) -> None:
    assert packets.packet(data) is None


def test_a_later_fragment_has_no_ports() -> None:
    first, later = bytearray(packet(A, B, UDP)), bytearray(packet(A, B, UDP))
    first[6:8], later[6:8] = struct.pack(">H", 0x2000), struct.pack(">H", 0x2010)
    assert packets.packet(bytes(first)) == Packet(ip_address(A), ip_address(B), UDP, 40000, 80)
    assert packets.packet(bytes(later)) == Packet(ip_address(A), ip_address(B), UDP)


def test_ports_are_found_behind_extension_headers_and_not_behind_a_hundred() -> None:
    plain = packet(A6, B6)
    one = plain[:6] + bytes((0,)) + plain[7:40] + bytes((TCP, 0)) + bytes(6) + plain[40:]
    assert packets.packet(one) == packets.packet(plain)
    many = plain[:6] + bytes((0,)) + plain[7:40] + 100 * (bytes((0, 0)) + bytes(6)) + plain[40:]
    found = packets.packet(many)
    assert found is not None and found.port == 0


@given(st.binary(max_size=200))
def test_no_bytes_raise(data: bytes) -> None:
    packets.packet(data)
    packets.packet(b"\x45" + data)
    packets.packet(b"\x60" + data)


@given(st.integers(0, 255), st.binary(min_size=0, max_size=120))
def test_no_chain_of_ipv6_headers_raises(protocol: int, rest: bytes) -> None:
    plain = packet(A6, B6)
    packets.packet(plain[:6] + bytes((protocol,)) + plain[7:40] + rest)


INGRESS, EGRESS = Direction.INGRESS, Direction.EGRESS


@pytest.mark.parametrize(
    ("direction", "isolated", "flags", "client"),
    [
        pytest.param(INGRESS, (B,), SYN, A, id="to the isolated pod"),
        pytest.param(INGRESS, (A,), ACK, B, id="the isolated pod answers"),
        pytest.param(EGRESS, (A,), SYN, A, id="the isolated pod asks"),
        pytest.param(EGRESS, (B,), ACK, B, id="the isolated pod is answered"),
        pytest.param(INGRESS, (A, B), SYN, A, id="both are isolated"),
        pytest.param(INGRESS, (A, B), SYN_ACK, B, id="both are isolated, and it is plainly an answer"),
        pytest.param(INGRESS, (), SYN, A, id="the group is gone"),
    ],
)
def test_who_has_begun(direction: Direction, isolated: tuple[str, ...], flags: int, client: str) -> None:
    data = packet(A, B, ports=(1000, 2000), flags=flags)
    found = packets.packet(data)
    assert found is not None
    server, port = (B, 2000) if client == A else (A, 1000)
    expected = Flow(direction, ip_address(client), ip_address(server), "TCP", port)
    assert packets.flow(found, direction, addresses(*isolated)) == expected
