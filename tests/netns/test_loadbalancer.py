"""Real load balancer daemons on a real link, with a real API server: who answers ARP and NDP, and for how long."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from controlplane.cluster.plan import load_balancer, manifests
from loadbalancer.leases import DURATION, RENEW, member
from loadbalancer.model import NAMESPACE
from loadbalancer.plan.table import of_lease
from loadbalancer.watches import LEASES
from nodelib.errors import NodewrightError
from nodelib.json_values import Json
from nodelib.kube.client import KubeClient
from tests.netns.api_server import ApiServer, run_inside, running
from tests.netns.balancer_world import POOL, POOL6, Daemon, Space, wait_for

pytestmark = pytest.mark.netns

T = TypeVar("T")
_NAMES = ("node1", "node2", "node3")
_SERVICES = "/api/v1/namespaces/default/services"
_FLOOD = """
import socket, sys, time
one = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
one.bind(("eth0", 0x0806))
mac = one.getsockname()[4]
frame = b"\\xff" * 6 + mac + bytes.fromhex("0806" "0001080006040001") + mac + socket.inet_aton(sys.argv[2])
frame += bytes(6) + socket.inet_aton(sys.argv[1])
until, sent = time.monotonic() + float(sys.argv[3]), 0
while time.monotonic() < until:
    try:
        one.send(frame)
        sent += 1
    except OSError:
        pass
print(sent)
"""


class World:
    """Three nodes with daemons, and a client."""

    def __init__(self, api: ApiServer, folder: Path) -> None:
        self.api = api
        self.nodes = {name: Space(api.netns, "nwn0", name, 11 + number) for number, name in enumerate(_NAMES)}
        self.client = Space(api.netns, "nwn0", "client", 99)
        self.daemons = {
            name: Daemon(space, api.access("admin"), folder, POOL, POOL6) for name, space in self.nodes.items()
        }

    def call(self, work: Callable[[KubeClient], Awaitable[T]]) -> T:
        found: list[T] = []

        async def inside() -> None:
            async with KubeClient(self.api.access("admin"), user_agent="test") as client:
                found.append(await work(client))

        run_inside(self.api.netns, inside)
        return found[0]

    def create(self, *names: str, **spec: Any) -> None:
        async def work(client: KubeClient) -> None:
            full = {"type": "LoadBalancer", "ports": [{"port": 80}], "selector": {"app": "x"}, **spec}
            await asyncio.gather(
                *(client.post(_SERVICES, {"metadata": {"name": name}, "spec": full}) for name in names)
            )

        self.call(work)

    def services(self) -> list[Json]:
        async def work(client: KubeClient) -> list[Json]:
            items = (await client.get(_SERVICES))["items"]
            return [one for one in items if one["spec"]["type"] == "LoadBalancer"]

        return self.call(work)

    def addresses(self) -> dict[str, list[str]]:
        return {
            one["metadata"]["name"]: [entry["ip"] for entry in one["status"]["loadBalancer"].get("ingress") or []]
            for one in self.services()
        }

    def address(self, name: str) -> str:
        return str(wait_for(f"{name} has an address", lambda: self.addresses()[name])[0])

    def assigned(self, address: str) -> str:
        """The node that announces it, by the table."""

        async def work(client: KubeClient) -> str:
            rows = of_lease(await client.get(f"{LEASES}/addresses")).rows
            return next((row.node for one, row in rows.items() if str(one) == address), "")

        return self.call(work)

    def renewed(self, node: str) -> str:
        """When the node's Lease was renewed."""

        async def work(client: KubeClient) -> str:
            return str((await client.get(f"{LEASES}/{member(node)}"))["spec"]["renewTime"])

        return self.call(work)

    def leader(self) -> str:
        async def work(client: KubeClient) -> str:
            return str((await client.get(f"{LEASES}/leader"))["spec"]["holderIdentity"]).partition("_")[0]

        return self.call(work)

    def answers(self, address: str) -> str:
        """The name of the node that answers for it, "" if none does."""
        mac = self.client.who_has(address)
        return next((name for name, space in self.nodes.items() if space.mac == mac), mac)

    def answered(self, address: str, *, not_by: str = "", seconds: float = 20) -> str:
        def found() -> str:
            name = self.answers(address)
            return name if name != not_by else ""

        return str(wait_for(f"{address} is answered, not by {not_by or 'nobody'}", found, seconds, 0.02))

    def settled(self, address: str) -> str:
        """The node that answers, which is the one of the table."""

        def found() -> str:
            name = self.assigned(address)
            return name if name and self.answers(address) == name else ""

        return str(wait_for(f"{address} is answered by the node of the table", found))

    def reset(self) -> None:
        for one in self.nodes.values():
            one.cut(off=False)
            one.run("iptables", "-F", "OUTPUT", check=False)
        before = {name: self.renewed_or_never(name) for name in self.nodes}
        for name, daemon in self.daemons.items():
            if daemon.process is None:
                daemon.start()
            else:
                daemon.signal(signal.SIGCONT)
            assert daemon.process is not None and daemon.process.poll() is None, f"{name}: {daemon.log[-2000:]}"

        async def clean(client: KubeClient) -> None:
            for one in (await client.get(_SERVICES))["items"]:
                if one["spec"]["type"] == "LoadBalancer":
                    await client.delete(f"{_SERVICES}/{one['metadata']['name']}")

        self.call(clean)

        async def empty(client: KubeClient) -> bool:
            try:
                return not of_lease(await client.get(f"{LEASES}/addresses")).rows
            except NodewrightError:
                return True

        wait_for("the table is empty", lambda: self.call(empty))
        for name, at in before.items():  # one that begins late gets none of a test's first addresses
            wait_for(f"{name} renews its Lease", partial(self._renews, name, at))

    def renewed_or_never(self, node: str) -> str:
        """The same as renewed(), "" before the node's first Lease."""
        try:
            return self.renewed(node)
        except NodewrightError:
            return ""

    def _renews(self, node: str, than: str) -> bool:
        return self.renewed_or_never(node) != than

    def close(self) -> None:
        for daemon in self.daemons.values():
            daemon.kill()
        for one in (*self.nodes.values(), self.client):
            one.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("balancer")
    with running(folder, [], service_ranges="10.96.0.0/16,fd00:96::/112") as api:
        world = World(api, folder)

        async def prepare(client: KubeClient) -> None:
            for obj in load_balancer.objects():
                await client.post(manifests.path_of(obj).rpartition("/")[0], obj)
            for name in _NAMES:
                await client.post("/api/v1/nodes", {"metadata": {"name": name}})

        try:
            world.call(prepare)
            yield world
        finally:
            world.close()


@pytest.fixture
def world(shared: World) -> World:
    shared.reset()
    return shared


def test_one_node_answers_in_both_families_and_serves_nothing_of_its_own_there(world: World) -> None:
    world.create("x", ipFamilyPolicy="RequireDualStack")
    address, address6 = wait_for("two addresses", lambda: (found := world.addresses()["x"]) and found)
    node = world.settled(address)
    assert node in _NAMES and world.settled(address6) in _NAMES
    other = next(one for name, one in world.nodes.items() if name != node)
    assert other.who_has(address) == world.nodes[node].mac, "from another node"
    shown = world.nodes[node].run("ip", "addr").stdout
    assert address not in shown and address6 not in shown
    server = world.nodes[node].start(sys.executable, "-S", "-m", "http.server", "8022")
    try:
        own = world.nodes[node].address

        def connects(host: str) -> bool:
            ask = f"timeout 1 bash -c 'exec 3<>/dev/tcp/{host}/8022'"
            return world.client.run("bash", "-c", ask, check=False).returncode == 0

        wait_for("the node's own server", lambda: connects(own))
        assert not connects(address)
    finally:
        server.kill()
        server.wait()


def one_address_each(world: World) -> dict[str, str]:
    """By node. On a busy machine a node may have been late for a moment, and then another one has two."""
    found: dict[str, str] = {}
    for name in ("u", "v", "w", "x", "y", "z"):
        world.create(name)
        address = world.address(name)
        found[world.settled(address)] = address
        if found.keys() >= set(_NAMES):
            break
    return found


@pytest.mark.parametrize("leads", [True, False], ids=["which-leads", "which-does-not-lead"])
def test_another_node_takes_over_within_three_seconds_of_a_node_s_death(world: World, leads: bool) -> None:
    nodes = one_address_each(world)
    leader = world.leader()
    dead = leader if leads else next(name for name in nodes if name != leader)
    began = time.monotonic()
    world.nodes[dead].cut()
    world.daemons[dead].kill()
    heir = world.answered(nodes[dead], not_by=dead)
    took = time.monotonic() - began
    print(f"{'leader' if leads else 'member'} dead: {took:.2f} s")
    assert heir in _NAMES and took < 3
    for node, address in nodes.items():
        if node != dead:
            assert world.settled(address) == node, "nobody else's address moves"


def test_a_daemon_that_is_killed_and_started_again_keeps_its_address(world: World) -> None:
    world.create("x")
    address = world.address("x")
    node = world.settled(address)
    in_time = 0
    for _ in range(5):
        renewed, began = world.renewed(node), time.monotonic()
        world.daemons[node].kill()
        world.daemons[node].start()
        wait_for("it renews its Lease again", partial(_is_newer, world, node, renewed))
        if time.monotonic() - began > DURATION - RENEW:
            node = world.settled(address)
            continue
        in_time += 1
        assert world.answered(address) == node and world.assigned(address) == node
    if not in_time:
        pytest.skip("this machine is too busy: a daemon needs more than a second to start")


def _is_newer(world: World, node: str, than: str) -> bool:
    return world.renewed(node) != than


def test_a_daemon_that_was_stopped_for_long_does_not_answer_beside_the_new_one(world: World) -> None:
    world.create("x")
    address = world.address("x")
    old = world.settled(address)
    world.daemons[old].signal(signal.SIGSTOP)
    heir = world.answered(address, not_by=old)
    for _ in range(20):  # what waits in the socket of the stopped one
        world.client.run("bash", "-c", f"echo > /dev/udp/{address}/9", check=False)
        world.client.who_has(address)
    world.daemons[old].signal(signal.SIGCONT)
    for _ in range(30):
        assert world.answers(address) == heir
    assert world.assigned(address) == heir


def test_without_the_api_server_every_address_is_still_answered(world: World) -> None:
    world.create("x", "y")
    addresses = [world.address(name) for name in ("x", "y")]
    nodes = [world.settled(one) for one in addresses]
    for one in world.nodes.values():
        one.run("iptables", "-A", "OUTPUT", "-p", "tcp", "--dport", "6443", "-j", "DROP")
    end = time.monotonic() + 6
    while time.monotonic() < end:
        assert [world.answered(one, seconds=1) for one in addresses] == nodes
    world.daemons[nodes[0]].kill()
    world.daemons[nodes[0]].start()
    assert world.answered(addresses[0]) == nodes[0], "a new daemon knows its addresses from its file"
    for one in world.nodes.values():
        one.run("iptables", "-F", "OUTPUT")
    for address in addresses:
        world.settled(address)


def test_a_node_that_lost_only_the_api_server_gives_way_to_the_one_that_takes_over(world: World) -> None:
    world.create("x")
    address = world.address("x")
    old = world.settled(address)
    world.nodes[old].run("iptables", "-A", "OUTPUT", "-p", "tcp", "--dport", "6443", "-j", "DROP")
    wait_for("the table has another node", lambda: world.assigned(address) not in ("", old))
    heir = world.assigned(address)
    wait_for("the new one answers", lambda: world.answers(address) == heir, 2)
    for _ in range(30):
        assert world.answers(address) == heir


def test_services_made_in_one_moment_never_get_one_address_and_the_rest_hears_why(world: World) -> None:
    names = [f"s{number}" for number in range(12)]
    world.create(*names)

    def full() -> list[str]:
        given = [one for each in world.addresses().values() for one in each]
        assert len(given) == len(set(given))
        return given if len(given) == 4 else []

    wait_for("four addresses are given", full)

    async def events(client: KubeClient) -> list[str]:
        items = (await client.get("/apis/events.k8s.io/v1/namespaces/default/events"))["items"]
        return [one["note"] for one in items if one["reason"] == "PoolExhausted"]

    notes = wait_for("an event for each that has none", lambda: len(found := world.call(events)) >= 8 and found)
    assert "Delete a Service of type LoadBalancer" in notes[0]
    lucky = next(name for name, given in world.addresses().items() if given)

    async def delete(client: KubeClient) -> None:
        await client.delete(f"{_SERVICES}/{lucky}")

    world.call(delete)
    wait_for("another Service has the address that is free now", full)


def test_the_address_is_cleared_when_the_type_changes(world: World) -> None:
    world.create("x")
    world.address("x")

    async def change(client: KubeClient) -> None:
        await client.patch(f"{_SERVICES}/x", {"spec": {"type": "ClusterIP"}})

    async def cleared(client: KubeClient) -> bool:
        return not (await client.get(f"{_SERVICES}/x"))["status"]["loadBalancer"].get("ingress")

    world.call(change)
    wait_for("the status has no address", lambda: world.call(cleared))

    async def rows(client: KubeClient) -> int:
        return len(of_lease(await client.get(f"{LEASES}/addresses")).rows)

    wait_for("the address is free", lambda: world.call(rows) == 0)

    async def delete(client: KubeClient) -> None:
        await client.delete(f"{_SERVICES}/x")

    world.call(delete)


def test_policy_local_is_announced_by_a_node_with_endpoints_and_follows_them(world: World) -> None:
    world.create("x", externalTrafficPolicy="Local")
    address = world.address("x")
    path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"

    def endpoints(node: str) -> Json:
        return {
            "metadata": {"name": "x", "labels": {"kubernetes.io/service-name": "x"}},
            "addressType": "IPv4",
            "ports": [{"port": 80}],
            "endpoints": [{"addresses": ["10.1.1.1"], "nodeName": node, "conditions": {"ready": True}}],
        }

    async def make(client: KubeClient) -> None:
        await client.post(path, endpoints("node2"))

    async def move(client: KubeClient) -> None:
        await client.patch(f"{path}/x", endpoints("node3"))

    async def end(client: KubeClient) -> None:
        await client.delete(f"{path}/x")

    assert world.answers(address) == "", "no node has endpoints"
    try:
        world.call(make)
        assert world.settled(address) == "node2"
        world.call(move)
        wait_for("the address follows", lambda: world.answers(address) == "node3")
    finally:
        with contextlib.suppress(NodewrightError):
            world.call(end)


def test_a_flood_of_questions_costs_little_and_the_address_still_answers(world: World) -> None:
    world.create("x")
    address = world.address("x")
    node = world.settled(address)
    process = world.daemons[node].process
    assert process is not None
    before = _cpu(process.pid)
    flood = world.client.run(sys.executable, "-S", "-c", _FLOOD, address, world.client.address, "4")
    used = _cpu(process.pid) - before
    print(f"{flood.stdout.strip()} questions in 4 s cost {used:.2f} s of CPU")
    assert int(flood.stdout) > 10_000
    assert used < 1.6
    assert world.answered(address, seconds=3) == node
    assert world.assigned(address) == node, "it has renewed its Lease meanwhile"


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_the_namespace_of_the_leases_is_the_one_that_up_makes() -> None:
    assert {obj["metadata"]["name"] for obj in load_balancer.objects() if obj["kind"] == "Namespace"} == {NAMESPACE}
