"""Services with a healthCheckNodePort each, hundreds of them in one namespace, and clients of theirs."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import aiohttp
import pytest

from nodelib.connections.limits import OPEN_AT_MANY
from proxy.edge.servers import ServiceHealthServers
from proxy.model import NamespacedName

MANY = 40
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"  # whose body does not come


@pytest.fixture
def ports() -> list[int]:
    with contextlib.ExitStack() as stack:
        found = []
        for _ in range(MANY + 1):
            one = stack.enter_context(socket.socket())
            one.bind(("127.0.0.1", 0))
            found.append(int(one.getsockname()[1]))
    return found


@pytest.fixture
def clients() -> Iterator[list[socket.socket]]:
    found: list[socket.socket] = []
    yield found
    for one in found:
        one.close()


def names(ports: list[int], namespace: str = "ns") -> dict[NamespacedName, int]:
    return {NamespacedName(namespace, f"s{port}"): port for port in ports}


async def connect(clients: list[socket.socket], port: int, sends: bytes = b"") -> None:
    one = socket.socket()
    one.setblocking(False)
    clients.append(one)
    await asyncio.get_running_loop().sock_connect(one, ("127.0.0.1", port))
    if sends:
        one.send(sends)


def open_at(clients: list[socket.socket]) -> int:
    """How many of these connections the server has not closed."""
    count = 0
    for one in clients:
        try:
            count += one.recv(1) != b""
        except BlockingIOError:
            count += 1
        except OSError:
            pass
    return count


async def test_closing_ports_waits_for_no_client(ports: list[int], clients: list[socket.socket]) -> None:
    """A client that does not send what it said held each for a second, one after the other, and all rules waited."""
    servers = ServiceHealthServers(("127.0.0.1",), lambda: True, lambda *_: None)
    await servers.sync(names(ports), {})
    for port in ports[:10]:
        await connect(clients, port, REQUEST)
    await asyncio.sleep(0.3)
    began = asyncio.get_running_loop().time()
    await servers.sync({}, {})
    assert asyncio.get_running_loop().time() - began < 0.5
    await asyncio.sleep(0.05)
    assert not servers._namespaces
    with pytest.raises(OSError):
        await connect(clients, ports[0])


async def test_the_ports_of_a_namespace_have_the_connections_of_one(
    ports: list[int], clients: list[socket.socket]
) -> None:
    servers = ServiceHealthServers(("127.0.0.1",), lambda: True, lambda *_: None)
    await servers.sync(names(ports[:-1]) | names(ports[-1:], "else"), {NamespacedName("else", f"s{ports[-1]}"): 1})
    for port in ports[:-1]:
        for _ in range(15):
            await connect(clients, port)
    await asyncio.sleep(1.0)
    gate = servers._namespaces["ns"].server._gate
    assert len(gate._all) <= OPEN_AT_MANY.strangers
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{ports[-1]}/") as answer:
        assert answer.status == 200, "nobody else waits"
        assert (await answer.json())["service"] == {"namespace": "else", "name": f"s{ports[-1]}"}
    await servers.close()


async def test_a_few_silent_clients_at_each_port_keep_nobody_waiting(
    ports: list[int], clients: list[socket.socket]
) -> None:
    servers = ServiceHealthServers(("127.0.0.1",), lambda: True, lambda *_: None)
    await servers.sync(names(ports), {NamespacedName("ns", f"s{ports[-1]}"): 1})
    for _ in range(25):
        for port in ports:
            await connect(clients, port)
    limit = aiohttp.ClientTimeout(total=5)  # by places that are given up after two seconds it is eight
    async with (
        aiohttp.ClientSession(timeout=limit) as session,
        session.get(f"http://127.0.0.1:{ports[-1]}/") as answer,
    ):
        assert answer.status == 200
    await servers.close()


async def test_a_balancer_keeps_connections_to_all_ports(ports: list[int], clients: list[socket.socket]) -> None:
    servers = ServiceHealthServers(("127.0.0.1",), lambda: True, lambda *_: None)
    await servers.sync(names(ports), {})
    for _ in range(4):
        for port in ports:
            await connect(clients, port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    for _ in range(100):
        await asyncio.sleep(0.05)
        if sum(map(_is_answered, clients)) == len(clients):
            break
    assert sum(map(_is_answered, clients)) == len(clients) == 4 * (MANY + 1)
    await servers.close()


def _is_answered(client: socket.socket) -> bool:
    try:
        return client.recv(4, socket.MSG_PEEK) == b"HTTP"
    except OSError:
        return False


async def test_each_port_answers_for_its_service(ports: list[int]) -> None:
    servers = ServiceHealthServers(("127.0.0.1",), lambda: True, lambda *_: None)
    await servers.sync(names(ports), {NamespacedName("ns", f"s{ports[0]}"): 3})
    async with aiohttp.ClientSession() as session:
        for port, count in ((ports[0], 3), (ports[1], 0)):
            async with session.get(f"http://127.0.0.1:{port}/") as answer:
                body = await answer.json()
                assert (body["service"]["name"], body["localEndpoints"]) == (f"s{port}", count)
        moved = names(ports[2:]) | {NamespacedName("ns", f"s{ports[0]}"): ports[1]}
        await servers.sync(moved, {})
        async with session.get(f"http://127.0.0.1:{ports[1]}/") as answer:
            assert (await answer.json())["service"]["name"] == f"s{ports[0]}"
    await servers.close()


async def test_two_services_that_ask_for_one_port(ports: list[int]) -> None:
    failed: list[NamespacedName] = []
    servers = ServiceHealthServers(("127.0.0.1",), lambda: True, lambda name, _: failed.append(name))
    first, second, other = NamespacedName("ns", "a"), NamespacedName("ns", "b"), NamespacedName("else", "c")
    wanted = {first: ports[0], second: ports[0], other: ports[0]}
    for _ in range(2):
        await servers.sync(wanted, {})
    assert failed == [second, other] and servers.failing
    del wanted[first]
    await servers.sync(wanted, {})
    assert servers._open == {second: ports[0]}
    await servers.close()
    assert not servers._namespaces
