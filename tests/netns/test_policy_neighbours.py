"""A pod with CAP_NET_RAW that answers for the addresses of others: for a pod's, for its node's, over ARP and ND."""

from __future__ import annotations

import asyncio
import json
import struct
import sys
from collections.abc import Iterator
from ipaddress import IPv6Address, ip_address
from pathlib import Path

import pytest

from loadbalancer.plan.frames import announcements, solicited_node
from nodelib.addresses import hardware_address
from nodelib.netlink.families import BRIDGE
from policy.model import Name
from policy.plan import frames as plan
from tests.netns.cni_world import Namespace
from tests.netns.cni_world import World as CniWorld
from tests.netns.policy_world import PolicyWorld, frames_of, table_in
from tests.netns.test_cni_ipv6 import Dual
from tests.netns.test_cni_spoofing import mac_of
from tests.netns.test_policy_frames import TAGS
from tests.netns.test_policy_packets import SEND_FRAMES, V6
from tests.netns.test_proxy_packets import FAR, NODE, POD1, POD2

pytestmark = pytest.mark.netns

NODE6 = "fd00:244::1"
POD_ONE, POD_TWO = (ip_address(POD1), ip_address("fd00:244::a0b:c0d")), (ip_address("10.244.9.200"),)


@pytest.fixture(scope="module")
def world() -> Iterator[PolicyWorld]:
    one = PolicyWorld()
    one.give_hardware_addresses(POD1, POD2, FAR)
    yield one
    one.close()


OWN, EVIL = hardware_address(ip_address(POD1)), hardware_address(ip_address(POD2))
CLAIMED = (FAR, NODE, V6[FAR], NODE6)


def neighbours(space: Namespace) -> dict[str, str]:
    """Where a namespace sends what is for its neighbours."""
    shown = json.loads(space.run("ip", "-json", "neigh", "show").stdout)
    return {one["dst"]: one["lladdr"] for one in shown if "lladdr" in one}


def solicitation(source: str, target: str, mac: str) -> str:
    """A question over neighbour discovery that says where its sender is."""
    own, asked, to = IPv6Address(source), IPv6Address(target), solicited_node(IPv6Address(target))
    mac_bytes = bytes.fromhex(mac.replace(":", ""))
    body = struct.pack("!BBHI16s", 135, 0, 0, 0, asked.packed) + b"\x01\x01" + mac_bytes
    pseudo = own.packed + to.packed + struct.pack("!II", len(body), 58) + body
    total = sum(struct.unpack(f"!{len(pseudo) // 2}H", pseudo))
    total = (total & 0xFFFF) + (total >> 16)
    body = body[:2] + struct.pack("!H", ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF) + body[4:]
    head = struct.pack("!IHBB16s16s", 6 << 28, len(body), 58, 255, own.packed, to.packed)
    return (b"\x33\x33" + to.packed[-4:] + mac_bytes + b"\x86\xdd" + head + body).hex()


def claims(*addresses: str) -> list[str]:
    """What a pod sends that wants what is for these addresses; with a tag for VLAN 0 too, once and twice."""
    mac = bytes.fromhex(EVIL.replace(":", ""))
    found = [one.hex() for address in addresses for one in announcements(ip_address(address), mac)]
    found += [solicitation(address, V6[POD1], EVIL) for address in addresses if ":" in address]
    return found + [one[:24] + tag + one[24:] for one in found for tag in TAGS.values()]


def meet(world: PolicyWorld) -> None:
    """Everybody has talked to everybody, so that claims are about neighbours that are known."""
    for who in (POD1, "node"):
        for to in (FAR, V6[FAR], POD1, V6[POD1]):
            assert world.ask(who, to, 8080, 1).startswith("pod")
    for to in (NODE, NODE6):
        world.ask(POD1, to, 9, 1)


def misled(world: PolicyWorld) -> set[tuple[str, str]]:
    """Who believes the pod that claims these addresses."""
    meet(world)
    world.pods[POD2].run(sys.executable, "-IS", "-c", SEND_FRAMES, *claims(*CLAIMED, POD1, V6[POD1]))
    spaces = {"pod1": world.pods[POD1], "node": world.node}
    evil = mac_of(world.pods[POD2], "eth0")
    taken = {(who, to) for who, one in spaces.items() for to, mac in neighbours(one).items() if mac == evil}
    for one in spaces.values():
        one.run("ip", "neigh", "flush", "all")
    return {(who, to) for who, to in taken if to not in (POD2, V6[POD2]) and not to.startswith("fe80")}


def test_a_pod_answers_for_its_own_addresses_only(world: PolicyWorld) -> None:
    frames = world.frames()

    async def scenario() -> None:
        await frames.enforce()
        for name, address in (("one", POD1), ("two", POD2), ("far", FAR)):
            await frames.hold(Name("a", name), (ip_address(address), ip_address(V6[address])))

    asyncio.run(scenario())
    assert misled(world) == set()
    for to in (POD2, V6[POD2]):  # neighbours of their own accord, with empty caches
        assert world.ask(POD1, to, 8080, 1).startswith("pod12")
        assert world.ask("node", to, 8080, 1).startswith("pod12")
    asyncio.run(frames.remove())
    assert {("pod1", NODE), ("pod1", FAR), ("node", POD1), ("pod1", V6[FAR]), ("node", V6[POD1])} <= misled(world), (
        "what the table is for"
    )


def test_elements_are_those_that_nft_writes(world: PolicyWorld) -> None:
    """A pod that starts has its own added without nft, which reads them from a text."""
    table, pods = table_in(world.node, BRIDGE), {hardware_address(one[0]): one for one in (POD_ONE, POD_TWO)}
    sets = ("pods", "pods4", "pods6")

    async def scenario() -> tuple[dict[str, set[bytes]] | None, dict[str, set[bytes]] | None]:
        await table.text(plan.transaction(pods))
        written = await table.elements(sets)
        await table.text(plan.transaction({}))
        for mac, addresses in pods.items():
            await table.write((), plan.elements({mac: addresses}))
        return written, await table.elements(sets)

    written, added = asyncio.run(scenario())
    asyncio.run(world.frames().remove())
    assert written == added and written and [len(written[one]) for one in sets] == [2, 2, 1]


def test_pods_of_the_pod_network_find_each_other_and_their_node(tmp_path: Path) -> None:
    """On two dual-stack nodes, with the addresses that the pod network itself has given."""
    world = CniWorld(tmp_path)
    try:
        dual = Dual(world, "nftables")
        client, server, far = world.namespace(), world.namespace(), world.namespace()
        given = {name: dual.one.add_all(name, pod) for name, pod in (("client", client), ("server", server))}
        given["far"] = dual.two.add_all("far", far)
        for name, pod in (("server", server), ("far", far)):
            pod.serve("tcp", 80, name)

        async def scenario() -> None:
            frames = frames_of(dual.one.namespace)
            await frames.enforce()
            for name in ("client", "server"):
                await frames.hold(Name("a", name), tuple(map(ip_address, given[name])))

        asyncio.run(scenario())
        spaces = (client, server, dual.one.namespace)
        for name in ("server", "far"):
            for address in given[name]:
                for one in spaces:
                    one.run("ip", "neigh", "flush", "all")
                assert client.ask("tcp", address, 80).startswith(f"{name} "), address
        for address in given["server"]:
            dual.one.namespace.run("ip", "neigh", "flush", "all")
            assert dual.one.namespace.ask("tcp", address, 80).startswith("server "), address
    finally:
        world.close()
