"""The userspace mode: which sockets, which rules, who is served by whom; and real sockets on loopback."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from dataclasses import replace

import pytest

from nodelib.errors import Temporary
from nodelib.firewall.objects import Family
from nodelib.netlink.flows import UdpFlow
from proxy.backends.context import NodeContext
from proxy.backends.userspace import Choose, UserspaceBackend
from proxy.edge import tcp_relay, udp_relay
from proxy.edge.relays import Relays
from proxy.model import Endpoint
from proxy.plan.userspace import roundrobin, sockets
from proxy.plan.userspace.portals import Pool, pools
from proxy.plan.userspace.roundrobin import Address, Clients, RoundRobin
from tests.builders.services import endpoint, endpoint_slice, service
from tests.fakes.clock import FakeClock
from tests.fakes.fake_iptables import FakeIptables
from tests.unit.proxy.build import CONTEXT, HERE, desired

ONE, TWO = Endpoint("10.1.0.1", 80), Endpoint("10.1.0.2", 80)


class FakeRelay:
    """`kept`: the addresses whose conversations go on."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.closed = False
        self.kept: frozenset[Address] = frozenset()

    def drop_except(self, addresses: frozenset[Address]) -> None:
        self.kept = addresses

    async def close(self) -> None:
        self.closed = True


class World:
    def __init__(self) -> None:
        self.fake = FakeIptables()
        self.relays: list[FakeRelay] = []
        self.full = False
        facts = NodeContext(replace(CONTEXT, localhost_node_ports=False))
        self.backend = UserspaceBackend(self.fake, facts, listen=self.listen, clock=FakeClock())

    async def listen(self, namespace: str, protocol: str, family: Family, choose: Choose) -> FakeRelay:
        if self.full:
            raise Temporary("Too many open files", obj=f"{protocol} socket")
        self.relays.append(FakeRelay(40000 + len(self.relays)))
        return self.relays[-1]

    def rules(self) -> list[str]:
        dump = self.fake.dump().split("*nat")[1].split("\n*")[0]
        return [line for line in dump.splitlines() if line.startswith("-A")]


async def test_the_chains_of_every_kind_of_address() -> None:
    world = World()
    one = service(
        "web",
        "172.30.0.1",
        type="LoadBalancer",
        externalIPs=["192.168.99.1"],
        lb=["1.2.3.4"],
        loadBalancerSourceRanges=["203.0.113.0/25"],
        ports=[{"name": "p80", "port": 80, "nodePort": 30080}],
    )
    await world.backend.sync(desired(one, endpoint_slice("web", ["10.1.0.1"])), None)
    head = "-m comment --comment ns/web:p80 -m tcp -p tcp"
    wanted = [
        f"{head} -d 172.30.0.1 --dport 80 -j REDIRECT --to-ports 40000",
        f"{head} -d 192.168.99.1 --dport 80 -j REDIRECT --to-ports 40000",
        f"{head} -s 203.0.113.0/25 -d 1.2.3.4 --dport 80 -j REDIRECT --to-ports 40000",
    ]
    rules = [line.replace('"', "") for line in world.rules()]
    for chain in ("KUBE-PORTALS-CONTAINER", "KUBE-PORTALS-HOST"):
        assert [line for line in rules if line.startswith(f"-A {chain} ")] == [f"-A {chain} {one}" for one in wanted]
    for chain in ("KUBE-NODEPORT-CONTAINER", "KUBE-NODEPORT-HOST"):
        assert f"-A {chain} {head} --dport 30080 -j REDIRECT --to-ports 40000" in rules
    hooks = [line.split(" -j ")[1] for line in rules if line.startswith("-A PREROUTING")]
    assert hooks == ["KUBE-PORTALS-CONTAINER", "KUBE-NODEPORT-CONTAINER"]
    assert await world.backend.audit(deep=True) == []
    world.fake.tables["nat"]["KUBE-PORTALS-HOST"].clear()
    assert await world.backend.audit(deep=False) == ["nat KUBE-PORTALS-HOST is not as we wrote it"]
    await world.backend.cleanup()
    assert "KUBE-" not in world.fake.dump() and world.relays[0].closed


async def test_sockets_come_and_go_with_their_ports() -> None:
    world = World()
    first = desired(service("a", "172.30.0.1"), endpoint_slice("a", ["10.1.0.1", "10.1.0.2"]))
    await world.backend.sync(first, None)
    second = desired(service("a", "172.30.0.1"), endpoint_slice("a", ["10.1.0.2"]), service("b", "172.30.0.2"))
    await world.backend.sync(second, frozenset(second.ports))
    assert [one.port for one in world.relays] == [40000, 40001]
    assert world.relays[0].kept == {("10.1.0.2", 80)}
    await world.backend.sync(desired(service("b", "172.30.0.2")), frozenset(first.ports))
    assert [one.closed for one in world.relays] == [True, False]
    assert not any("ns/a" in line for line in world.rules())


async def test_a_socket_that_cannot_be_had_is_the_problem_of_one_port() -> None:
    world = World()
    await world.backend.sync(desired(service("a", "172.30.0.1")), None)
    world.full = True
    both = desired(service("a", "172.30.0.1"), service("b", "172.30.0.2"))
    report = await world.backend.sync(both, frozenset(both.ports))
    assert [(one.obj, "Too many" in one.message) for one in report.problems] == [("Service ns/b:p80", True)]
    assert any("ns/a" in line for line in world.rules()) and not any("ns/b" in line for line in world.rules())


async def test_the_sockets_of_a_namespace_leave_ports_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its Services may have 100,000 ports, and the node has 28,232 from which its own programs connect: with all of
    them taken each connect() failed, the agent's to the API server as well."""
    monkeypatch.setattr(sockets, "MOST_OF_NAMESPACE", 20)
    world = World()
    ports = [{"name": f"p{number}", "port": number, "protocol": "TCP"} for number in range(1, 51)]
    many, other = service("a", "172.30.0.1", ports=ports), service("b", "172.30.0.2", namespace="other")
    both = desired(many, other)
    report = await world.backend.sync(both, None)
    assert len(world.relays) == 21 and any("other/b" in line for line in world.rules())
    assert {one.obj for one in report.problems} == {"Namespace ns"}
    await world.backend.sync(desired(other), frozenset(both.ports))
    again = desired(service("c", "172.30.0.3"), other)
    assert not (await world.backend.sync(again, frozenset(again.ports))).problems, "there is room again"


async def test_all_sockets_leave_ports_to_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "MOST", 3)
    world = World()
    every = [service(f"s{one}", f"172.30.0.{one}", namespace=f"n{one}") for one in range(1, 6)]
    report = await world.backend.sync(desired(*every), None)
    assert [one.obj for one in report.problems] == ["Service n4/s4:p80", "Service n5/s5:p80"]


def test_two_policies_two_sockets() -> None:
    world = desired(
        service("a", "172.30.0.1", type="NodePort", externalTrafficPolicy="Local"),
        endpoint_slice("a", [endpoint("10.1.0.1", HERE), endpoint("10.1.0.2", "there")]),
    )
    assert {name.external: pool.addresses for name, pool in pools(world, world.ports, CONTEXT).items()} == {
        False: (("10.1.0.1", 80), ("10.1.0.2", 80))
    }
    exposed = desired(
        service(
            "a",
            "172.30.0.1",
            type="NodePort",
            externalTrafficPolicy="Local",
            ports=[{"name": "p80", "port": 80, "nodePort": 30000}],
        ),
        endpoint_slice("a", [endpoint("10.1.0.1", HERE), endpoint("10.1.0.2", "there")]),
    )
    found = {name.external: pool.addresses for name, pool in pools(exposed, exposed.ports, CONTEXT).items()}
    assert found[True] == (("10.1.0.1", 80),) and len(found[False]) == 2


def test_round_robin() -> None:
    round_robin = RoundRobin()
    assert round_robin.choose("c", 0) is None
    round_robin.replace(Pool((ONE, TWO)))
    assert [round_robin.choose("c", 0) for _ in range(4)] == [("10.1.0.1", 80), ("10.1.0.2", 80)] * 2
    round_robin.replace(Pool((ONE, TWO), affinity_seconds=10))
    first = round_robin.choose("c", 0)
    assert round_robin.choose("c", 9) == round_robin.choose("c", 18) == first, "each connection prolongs it"
    assert round_robin.choose("d", 18) != first
    assert round_robin.choose("c", 19, reset_affinity=True) == first, "the next in turn"
    assert round_robin.choose("c", 40) != first, "its time was over"
    round_robin.replace(Pool((ONE,), affinity_seconds=10))
    assert round_robin.choose("c", 41) == ("10.1.0.1", 80)


def test_remembered_clients_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """From forged addresses, or those of a network of IPv6: two million took 346 MiB, and each sync 1.5 s."""
    monkeypatch.setattr(roundrobin, "MOST_CLIENTS", 10)
    namespace = Clients()
    first, second = RoundRobin(namespace), RoundRobin(namespace)
    for one in (first, second):
        one.replace(Pool((ONE, TWO), affinity_seconds=100))
    kept = first.choose("kept", 0)
    for number in range(1000):
        assert first.choose(f"flood{number}", number * 0.01)
        assert first.choose("kept", number * 0.01) == kept, "who goes on is remembered"
    assert second.choose("other", 0), "it is served all the same"
    assert namespace.count == 10
    first.expire(109.985)
    assert namespace.count == 2, "kept, and the last one"
    first.replace(Pool((ONE,), affinity_seconds=100))
    first.close()
    assert namespace.count == 0


def test_stale_flows_are_those_to_sockets_of_another_time() -> None:
    backend = World().backend
    world = desired(service("dns", "172.30.0.1", ports=[{"name": "p80", "port": 53, "protocol": "UDP"}]))
    old = UdpFlow("10.1.0.9", 5000, "172.30.0.1", 53, "192.168.0.10", 39999)
    assert backend.stale_flows(world, [old, replace(old, destination="8.8.8.8")]) == [old]


async def test_flows_are_looked_at_beside_a_sync() -> None:
    """It opens sockets meanwhile: the thread that looks at them failed."""
    world, loop = World(), asyncio.get_running_loop()
    dns = [{"name": "dns", "port": 53, "protocol": "UDP"}]
    one, two = service("a", "172.30.0.1", ports=dns), service("b", "172.30.0.2", ports=dns)
    await world.backend.sync(desired(one), None)
    both = desired(one, two)
    old = UdpFlow("10.1.0.9", 5000, "172.30.0.1", 53, "192.168.0.10", 39999)

    class Reading(FakeRelay):
        @property  # type: ignore[override]
        def port(self) -> int:
            if threading.current_thread() is not threading.main_thread() and len(world.relays) == 1:
                asyncio.run_coroutine_threadsafe(world.backend.sync(both, frozenset(both.ports)), loop).result(30)
            return 40000

        @port.setter
        def port(self, port: int) -> None:
            pass

    world.relays[0].__class__ = Reading
    assert await asyncio.to_thread(world.backend.stale_flows, desired(one), [old]) == [old]
    assert len(world.relays) == 2


@pytest.fixture
async def echo() -> Address:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"<" + await reader.read() + b">")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    found: Address = server.sockets[0].getsockname()
    return found


async def test_tcp_passes_both_ways_and_its_ends(echo: Address) -> None:
    dead = socket.create_server(("127.0.0.1", 0))
    nobody = dead.getsockname()
    dead.close()
    turns = [nobody, echo]
    one = await Relays().listen("ns", "TCP", Family.IPV4, lambda client, reset_affinity: turns[reset_affinity])
    reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
    writer.write(b"x" * 200_000)
    writer.write_eof()
    assert await reader.read() == b"<" + b"x" * 200_000 + b">", "the second endpoint after the first refused"
    writer.close()
    await one.close()


async def test_tcp_without_endpoints_is_reset() -> None:
    one = await Relays().listen("ns", "TCP", Family.IPV4, lambda client, reset_affinity: None)
    reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
    with pytest.raises(ConnectionResetError):
        await reader.readexactly(1)
    writer.close()
    await one.close()


async def test_udp_keeps_a_client_with_its_endpoint_until_that_is_gone() -> None:
    loop = asyncio.get_running_loop()
    servers = [_Named(name) for name in (b"one", b"two")]
    for server in servers:

        def made(server: _Named = server) -> _Named:
            return server

        await loop.create_datagram_endpoint(made, local_addr=("127.0.0.1", 0))
    addresses = [server.address for server in servers]
    left = list(addresses)
    one = await Relays().listen("ns", "UDP", Family.IPV4, lambda client, reset_affinity: left[0])
    client = _Client()
    await loop.create_datagram_endpoint(lambda: client, remote_addr=("127.0.0.1", one.port))
    assert [await client.ask() for _ in range(3)] == [b"one"] * 3
    del left[0]
    assert await client.ask() == b"one", "a conversation stays"
    one.drop_except(frozenset(left))
    assert await client.ask() == b"two"
    await one.close()


async def test_udp_from_thousands_of_ports_takes_a_bounded_number_of_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each packet from another port, or with another forged address, was a socket of the proxy for 30 seconds."""
    monkeypatch.setattr(udp_relay, "MOST_TALKS", 20)
    loop = asyncio.get_running_loop()
    server = _Named(b"one")
    await loop.create_datagram_endpoint(lambda: server, local_addr=("127.0.0.1", 0))
    one = await Relays().listen("ns", "UDP", Family.IPV4, lambda client, reset_affinity: server.address)
    busy = _Client()
    await loop.create_datagram_endpoint(lambda: busy, remote_addr=("127.0.0.1", one.port))
    before = len(os.listdir("/proc/self/fd"))
    floods = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(200)]
    for number, flood in enumerate(floods):
        flood.sendto(b"?", ("127.0.0.1", one.port))
        if number % 10 == 0:
            assert await busy.ask() == b"one", "who talks is served"
    assert len(os.listdir("/proc/self/fd")) - before <= len(floods) + 20 + 5
    for flood in floods:
        flood.close()
    await one.close()


async def test_tcp_connections_of_a_service_port_are_bounded(echo: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp_relay, "MOST_CONNECTIONS", 2)
    one = await Relays().listen("ns", "TCP", Family.IPV4, lambda client, reset_affinity: echo)
    held = [await asyncio.open_connection("127.0.0.1", one.port) for _ in range(2)]
    for _, writer in held:
        writer.write(b"x")
    refused, refused_writer = await asyncio.open_connection("127.0.0.1", one.port)
    with pytest.raises(ConnectionResetError):
        await refused.readexactly(1)
    for reader, writer in held:
        writer.write_eof()
        assert await reader.read() == b"<x>"
        writer.close()
    refused_writer.close()
    reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
    writer.write_eof()
    assert await reader.read() == b"<>", "there is room again"
    writer.close()
    await one.close()


async def test_what_the_services_of_a_namespace_have_open_is_bounded_together(
    echo: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One may have thousands of ports, each with its own bound."""
    monkeypatch.setattr(tcp_relay, "MOST_CONNECTIONS_OF_NAMESPACE", 2)
    monkeypatch.setattr(udp_relay, "MOST_TALKS_OF_NAMESPACE", 3)
    relays, loop = Relays(), asyncio.get_running_loop()
    places = ("ns", "ns", "ns", "other")
    tcp = [await relays.listen(place, "TCP", Family.IPV4, lambda client, reset: echo) for place in places]
    held = [await asyncio.open_connection("127.0.0.1", tcp[one].port) for one in (0, 1)]
    for _, writer in held:
        writer.write(b"x")
    refused, refused_writer = await asyncio.open_connection("127.0.0.1", tcp[2].port)
    with pytest.raises(ConnectionResetError):
        await refused.readexactly(1)
    reader, writer = await asyncio.open_connection("127.0.0.1", tcp[3].port)
    writer.write_eof()
    assert await reader.read() == b"<>", "another namespace"
    server = _Named(b"one")
    await loop.create_datagram_endpoint(lambda: server, local_addr=("127.0.0.1", 0))
    udp = [await relays.listen("ns", "UDP", Family.IPV4, lambda client, reset: server.address) for _ in range(2)]
    clients = [_Client() for _ in range(6)]
    for number, client in enumerate(clients):
        address = ("127.0.0.1", udp[0].port)
        await loop.create_datagram_endpoint(lambda client=client: client, remote_addr=address)  # type: ignore[misc]
        assert await client.ask() == b"one", f"client {number}: the one that is silent for longest gives way"
    for one in udp[:1]:
        await one.close()
    last = _Client()
    await loop.create_datagram_endpoint(lambda: last, remote_addr=("127.0.0.1", udp[1].port))
    assert await last.ask() == b"one", "there is room again"
    for each in (*[writer for _, writer in held], refused_writer, writer):
        each.close()
    for closing in (*tcp, *udp[1:]):
        await closing.close()


async def test_one_port_does_not_take_the_room_of_all_of_its_namespace(
    echo: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may reach one of them would keep the clients of all others away."""
    monkeypatch.setattr(tcp_relay, "MOST_CONNECTIONS_OF_NAMESPACE", 4)
    monkeypatch.setattr(udp_relay, "MOST_TALKS_OF_NAMESPACE", 4)
    relays, loop = Relays(), asyncio.get_running_loop()
    tcp = [await relays.listen("ns", "TCP", Family.IPV4, lambda client, reset: echo) for _ in range(2)]
    held = [await asyncio.open_connection("127.0.0.1", tcp[0].port) for _ in range(5)]
    with pytest.raises(ConnectionResetError):
        await held[-1][0].readexactly(1)
    for count in range(2):
        reader, writer = await asyncio.open_connection("127.0.0.1", tcp[1].port)
        writer.write_eof()
        assert await reader.read() == b"<>", f"connection {count} of another port"
        writer.close()
    server = _Named(b"one")
    await loop.create_datagram_endpoint(lambda: server, local_addr=("127.0.0.1", 0))
    udp = [await relays.listen("ns", "UDP", Family.IPV4, lambda client, reset: server.address) for _ in range(2)]
    clients = [_Client() for _ in range(10)]
    for number, client in enumerate(clients):
        address = ("127.0.0.1", udp[number > 7].port)
        await loop.create_datagram_endpoint(lambda client=client: client, remote_addr=address)  # type: ignore[misc]
        assert await client.ask() == b"one", f"client {number}"
    assert await clients[7].ask() == b"one"
    for _, writer in held:
        writer.close()
    for closing in (*tcp, *udp):
        await closing.close()


class _Named(asyncio.DatagramProtocol):
    def __init__(self, name: bytes) -> None:
        self.name = name

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        self.transport = transport
        self.address: Address = transport.get_extra_info("sockname")

    def datagram_received(self, data: bytes, addr: Address) -> None:
        self.transport.sendto(self.name, addr)


class _Client(asyncio.DatagramProtocol):
    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        self.transport = transport
        self.answers: asyncio.Queue[bytes] = asyncio.Queue()

    def datagram_received(self, data: bytes, addr: Address) -> None:
        self.answers.put_nowait(data)

    async def ask(self) -> bytes:
        self.transport.sendto(b"?")
        return await asyncio.wait_for(self.answers.get(), 10)
