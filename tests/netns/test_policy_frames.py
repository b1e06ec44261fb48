"""Frames that the kernel's bridge does not show to the rules of IP. Whoever has CAP_NET_RAW sends such."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from ipaddress import ip_address

import pytest

from policy.model import Name
from tests.builders.policies import policy
from tests.netns.policy_world import PolicyWorld, fill
from tests.netns.test_cni_spoofing import mac_of, udp
from tests.netns.test_policy_packets import HEARS, ONE, PODS, SEND_FRAMES, SPACES, V6
from tests.netns.test_proxy_packets import FAR, POD1, POD2

pytestmark = pytest.mark.netns

# Behind the two hardware addresses: 802.1Q and 802.1ad, once and twice, with the number 0, which stands for no VLAN.
TAGS = {"once": "81000000", "ad": "88a80000", "twice": "8100000081000000", "ad-q": "88a8000081000000"}


@pytest.fixture(scope="module")
def world() -> Iterator[PolicyWorld]:
    one = PolicyWorld()
    one.give_hardware_addresses(POD1, POD2, FAR)
    yield one
    one.close()


def heard(world: PolicyWorld, to: str, sender: str, *frames: str) -> list[str]:
    """What of these frames the pod `to` hears, and then of a packet that it may be sent."""
    listener = world.pods[to].start(sys.executable, "-IS", "-c", HEARS, stdout=subprocess.PIPE)
    said = listener.stdout
    assert said is not None and said.readline() == b"READY\n"
    world.pods[sender].run(sys.executable, "-IS", "-c", SEND_FRAMES, *frames)
    world.node.run(sys.executable, "-IS", "-c", _END, to)
    found = list(iter(lambda: said.readline().decode().strip(), "end"))
    listener.kill()
    return found


_END = """
import socket, sys
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"end", (sys.argv[1], 9))
"""


def frame(world: PolicyWorld, to: str, source: str, text: str, tag: str = "") -> str:
    """From POD2, whatever its source address says."""
    made = udp(to, mac_of(world.pods[POD2], "eth0"), (source, POD1), text.encode()).replace("00070007", "00070009", 1)
    return made[:24] + tag + made[24:]


def test_a_tag_leads_around_no_policy(world: PolicyWorld) -> None:
    """The bridge shows br_netfilter no tagged frame, and who receives one for VLAN 0 takes the tag off."""
    frames, to = world.frames(), mac_of(world.pods[POD1], "eth0")
    sent = [frame(world, to, POD2, "plain")]
    sent += [frame(world, to, source, name, tag) for name, tag in TAGS.items() for source in (POD2, FAR)]
    world.apply(PODS, [policy(select=ONE)], SPACES)
    asyncio.run(frames.enforce())
    assert heard(world, POD1, POD2, *sent) == []
    world.apply(PODS, [], SPACES)
    assert heard(world, POD1, POD2, *sent) == ["plain"]
    assert world.ask(POD2, V6[POD1], 8080, 1, timeout=3).startswith("pod11"), "neighbours find each other"
    asyncio.run(frames.remove())
    assert set(heard(world, POD1, POD2, *sent)) == {"plain", *TAGS}, "what the table is for"


def test_tagged_frames_to_the_node_meet_the_rules_as_any_packet_does(world: PolicyWorld) -> None:
    gateway = mac_of(world.node, "br0")
    sent = [
        frame(world, gateway, source, f"{name} {source}", tag) for name, tag in TAGS.items() for source in (POD2, FAR)
    ]

    async def scenario(*policies: object) -> list[str]:
        enforcer = world.enforcer()
        fill(enforcer, PODS, policies, SPACES)  # type: ignore[arg-type] # NetworkPolicies
        enforcer.hold(Name("a", "two"), "uid-two", (ip_address(POD2), ip_address(V6[POD2])))
        enforcer.start()
        await enforcer.sync()
        return await asyncio.to_thread(heard, world, POD1, POD2, *sent)

    assert asyncio.run(scenario(policy(select=ONE))) == []
    found = asyncio.run(scenario())
    assert found and all(one.endswith(POD2) for one in found), "its own address only"
