"""Relays whose endpoint leads back to a relay: its own Service's address, another's, or a node's with a NodePort."""

from __future__ import annotations

import asyncio
import socket
from typing import TypeVar

import pytest

from nodelib.firewall.objects import Family
from proxy.edge.relays import Relays
from proxy.edge.tcp_relay import TcpRelay
from proxy.edge.udp_relay import UdpRelay
from tests.waiting import until

LOOPBACK = {Family.IPV4: "127.0.0.1", Family.IPV6: "::1"}
_MOST = 6  # relays, one after the other
R = TypeVar("R", TcpRelay, UdpRelay)


async def leading_to_itself(family: Family, protocol: str, kind: type[R]) -> tuple[str, R]:
    """The address and the relay, whose endpoint is itself."""
    host, own = LOOPBACK[family], list[R]()
    relay = await Relays().listen("ns", protocol, family, lambda client, reset: (host, own[0].port))
    assert isinstance(relay, kind)
    own.append(relay)
    return host, relay


@pytest.mark.parametrize("family", list(Family))
async def test_one_packet_does_not_go_round_for_ever(family: Family) -> None:
    """Each round was another conversation, so that one packet took all of a processor for as long as the proxy ran."""
    host, relay = await leading_to_itself(family, "UDP", UdpRelay)
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.sendto(b"x", (host, relay.port))
        await until(lambda: len(relay._talks) > 1)
        await asyncio.sleep(0.3)
    assert len(relay._talks) <= _MOST
    await relay.close()


@pytest.mark.parametrize("family", list(Family))
async def test_one_connection_does_not_become_thousands(family: Family) -> None:
    host, relay = await leading_to_itself(family, "TCP", TcpRelay)
    most = 0
    _, writer = await asyncio.open_connection(host, relay.port)
    for _ in range(60):
        await asyncio.sleep(0.005)
        most = max(most, relay._open)
    assert 1 < most <= _MOST
    writer.close()
    await relay.close()


@pytest.mark.parametrize("family", list(Family))
async def test_a_service_behind_a_service_is_reached(family: Family) -> None:
    """Such as a proxy in a pod, or a NodePort of another node behind an address of this one."""
    host, relays = LOOPBACK[family], Relays()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read(10))
        writer.close()

    server = await asyncio.start_server(echo, host, 0)
    end = server.sockets[0].getsockname()[1]
    inner = await relays.listen("a", "TCP", family, lambda client, reset: (host, end))
    outer = await relays.listen("b", "TCP", family, lambda client, reset: (host, inner.port))
    reader, writer = await asyncio.open_connection(host, outer.port)
    writer.write(b"hello")
    assert await asyncio.wait_for(reader.read(10), 5) == b"hello"
    writer.close()
    server.close()
    for relay in (inner, outer):
        await relay.close()
