"""Policy daemons are killed under traffic, and many pods start: no forbidden packet passes, no allowed one is refused.

By hand: NODEWRIGHT_SOAK=100 ./nodewright test tests/cluster/test_soak_policy.py -m soak
(the number of kills; five times as many pods start in the other test. NODEWRIGHT_TEST_POLICY=name uses a cluster that
is there, NODEWRIGHT_SEED=7 repeats a run.)
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import re
from collections.abc import Iterator

import pytest

from controlplane.cluster.model import Cluster
from nodelib.command import run
from tests.builders.pods import container, manifest, sleeper, web
from tests.cluster.command_line import lent_or_raised
from tests.cluster.world import Object, World, holds, load

_KILLS = int(os.environ.get("NODEWRIGHT_SOAK", "0"))
_SEED = int(os.environ.get("NODEWRIGHT_SEED", "1"))
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.soak,
    pytest.mark.timeout(7200),
    pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root"),
    pytest.mark.skipif(not _KILLS, reason="runs by hand: NODEWRIGHT_SOAK=100"),
]
NODES = ("node1", "node2")
_PORT = 8080
_LONGEST_LIFE = 2.0  # seconds between two kills, at most
_AT_ONCE = 10  # pods


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[Cluster]:
    """A cluster with policies enforced."""
    words = ("--no-uplink", "--no-demo", "--network-policy")
    with lent_or_raised("NODEWRIGHT_TEST_POLICY", "tpol", *words, timeout=1800) as cluster:
        yield cluster


async def policy(world: World, name: str, **spec: object) -> None:
    await world.api.post(world.path("networkpolicies"), {"metadata": {"name": name}, "spec": spec})


async def test_kills_under_traffic_open_nothing_and_close_nothing(world: World) -> None:
    """Closed pods accept friends only; kept pods may ask closed ones only, which refuse them."""
    friends = [{"podSelector": {"matchLabels": {"kind": "friend"}}}]
    await policy(world, "closed", podSelector={"matchLabels": {"kind": "closed"}}, policyTypes=["Ingress"],
                 ingress=[{"from": friends}])  # fmt: skip
    closed = {"matchLabels": {"kind": "closed"}}
    await policy(world, "kept", podSelector={"matchLabels": {"kind": "kept"}}, policyTypes=["Egress"],
                 egress=[{"to": [{"podSelector": closed}]}])  # fmt: skip
    pods: dict[str, Object] = {}
    for node, kind in itertools.product(NODES, ("closed", "open", "friend", "stranger", "kept")):
        box = web() if kind in ("closed", "open") else sleeper()
        name = f"{kind}-{node}"
        pods[name] = await world.run(manifest(name, box, labels={"kind": kind}, nodeName=node))

    def urls(kind: str) -> list[str]:
        return [f"http://{pods[f'{kind}-{node}']['status']['podIP']}:{_PORT}/hostname" for node in NODES]

    allowed = {"friend": urls("closed") + urls("open"), "stranger": urls("open")}
    # What a kept pod sends to closed ones is refused where it arrives; to open ones, where it leaves.
    forbidden = {"stranger": urls("closed"), "kept": urls("open") + urls("closed")}
    passed: list[str] = []
    refused: list[str] = []
    asked = {True: 0, False: 0}
    with contextlib.ExitStack() as stack:
        loads = []
        for ways, good in ((allowed, True), (forbidden, False)):
            for kind, node in itertools.product(ways, NODES):
                net = await world.pod_net(pods[f"{kind}-{node}"])
                loads.append((kind, good, stack.enter_context(load(ways[kind], net=net, pause=0.1))))
        killed = await _kills(world, random.Random(_SEED))
        for kind, good, one in loads:
            result = one.stop()
            asked[good] += result["asked"]
            if good:
                refused += [f"{kind}: {failed}" for failed in result["failed"]]
            else:
                passed += [f"{kind} reached {who} {count} times" for who, count in result["by"].items()]
    print(f"{killed} kills; {asked[True]} allowed connections, {asked[False]} forbidden ones")
    assert asked[True] > killed and asked[False] > killed
    assert (passed, refused) == ([], [])


async def _kills(world: World, chance: random.Random) -> int:
    """Kill daemons while other policies and labels change, so that some die while they write."""
    for number in range(_KILLS):
        node = chance.choice(NODES)
        await policy(world, f"other-{number}", podSelector={"matchLabels": {"kind": f"none-{number % 7}"}})
        pid = await world.pid_once_running(node, "policy", seconds=120)
        relabel = asyncio.ensure_future(world.kubectl("label", "pod", f"open-{node}", f"turn={number}", "--overwrite"))
        await asyncio.sleep(chance.uniform(0, _LONGEST_LIFE))
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)
        await relabel
        if number > 3:
            await world.delete(f"other-{number - 3}", "networkpolicies")
    for node in NODES:
        await world.pid_once_running(node, "policy", seconds=120)
    return _KILLS


async def test_no_packet_of_a_pod_that_starts_leaves_before_it_is_protected(world: World) -> None:
    """A counter in the receiver's namespace sees every packet; pods send from their first instruction on."""
    await policy(world, "silent", podSelector={"matchLabels": {"kind": "silent"}}, policyTypes=["Egress"])
    sink = await world.run(manifest("sink", sleeper(), nodeName="node1"))
    net, address = await world.pod_net(sink), sink["status"]["podIP"]
    for words in (
        "add table ip seen",
        "add chain ip seen heard { type filter hook prerouting priority -300 ; }",
        "add rule ip seen heard udp dport 9999 counter",
    ):
        await run(["nsenter", f"--net={net}", "nft", words])

    async def packets() -> int:
        text = (await run(["nsenter", f"--net={net}", "nft", "list", "table", "ip", "seen"])).text
        found = re.search(r"packets (\d+)", text)
        assert found is not None, text
        return int(found[1])

    def sender(name: str, kind: str, node: str) -> Object:
        box = container(command=["sh", "-c", f"for i in 1 2 3; do echo x | nc -u -w 1 {address} 9999; done"])
        return manifest(name, box, labels={"kind": kind}, nodeName=node, restartPolicy="Never")

    await world.ended(sender("speaks", "speaks", "node2"))
    assert await packets() > 0, "the counter sees what an open pod sends"
    before = await packets()
    for begin in range(0, 5 * _KILLS, _AT_ONCE):
        names = [f"silent-{number}" for number in range(begin, begin + _AT_ONCE)]
        await asyncio.gather(
            *(world.ended(sender(name, "silent", NODES[i % 2]), seconds=600) for i, name in enumerate(names))
        )
        await asyncio.gather(*(world.delete(name, grace=0) for name in names))
        assert await packets() == before, f"a packet of one of {names}"

    async def none_left() -> bool:
        return not [pod for pod in await world.pods() if pod["metadata"]["name"].startswith("silent-")]

    await holds(none_left, "all pods are gone", 300)
    print(f"{5 * _KILLS} pods started, {await packets() - before} packets seen")
