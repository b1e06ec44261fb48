"""A node of the benchmark: a network namespace with a bridge, on which are the addresses of all pods, and a client."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from controlplane.cluster.edge.lab import Lab, Process, Space
from nodelib.errors import Permanent, Temporary
from tests.bench.policy_peers import objects

_PROBER = str(Path(__file__).with_name("prober.py"))
FLOW_PEER = str(Path(__file__).parents[1] / "flow_peer.py")
_BRIDGE, _GATEWAY = "pods0", "10.244.255.254/16"
Where = tuple[str, int]


@dataclass(frozen=True, slots=True)
class World:
    """`folder` is the node's own, for what its daemon keeps."""

    lab: Lab
    name: str
    folder: Path
    node: Space
    servers: Space
    client: Space

    async def close(self) -> None:
        for space in (self.client, self.servers, self.node):
            await self.lab.drop(space)


async def make(lab: Lab, name: str, number: int, addresses: Sequence[str]) -> World:
    """`number`: which of the node; no two at a time have the same."""
    node, servers, client = [
        await lab.space(f"{name}-{part}", 3 * number + at) for at, part in enumerate(("node", "servers", "client"))
    ]
    await node.run("ip", "link", "add", _BRIDGE, "type", "bridge")
    await node.run("ip", "addr", "add", _GATEWAY, "dev", _BRIDGE)
    await node.run("ip", "link", "set", _BRIDGE, "up")
    # Each probe is a connection of its own; a thousand a second for half a minute would fill the table.
    await node.run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.netfilter.nf_conntrack_udp_timeout=5")
    for space, link, here in ((servers, "servers", addresses), (client, "client", (objects.CLIENT,))):
        argv = ("ip", "link", "add", link, "type", "veth", "peer", "name", "pods", "netns", str(space.holder.pid))
        await node.run(*argv)
        await node.run("ip", "link", "set", link, "master", _BRIDGE, "up")
        lines = [f"addr add {one}/16 dev pods" for one in here]
        await _batch(space, [*lines, "link set pods up"])
    return World(lab, name, Path(tempfile.mkdtemp(dir=lab.folder)), node, servers, client)


async def _batch(space: Space, lines: Sequence[str]) -> None:
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("\n".join(lines) + "\n")
        file.flush()
        await space.run("ip", "-batch", file.name)


class Prober:
    """prober.py, for one world."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, world: World) -> Prober:
        argv = [sys.executable, "-IS", _PROBER, world.client.path, world.servers.path]
        process = await world.lab.spawn(f"{world.name}-prober", argv, pipes=True)
        world.client.processes.append(process)
        made = cls(process)
        if await made._line() != b"READY\n":
            raise Permanent(process.tail(), obj="prober", step="start")
        return made

    async def watch(self, closed: Sequence[Where], opened: Sequence[Where], limit: float) -> None:
        """Begin to watch. Raises Temporary if one of `closed` does not pass now, or one of `opened` does."""
        before = await self._begin(closed, opened, limit)
        if before != [True] * len(closed) + [False] * len(opened):
            await self.times()
            raise Temporary(f"{closed} and {opened} pass: {before}", obj="prober", step="see what passes before")

    async def times(self) -> list[float | None]:
        """When each became what was awaited, None for those that did not within the limit."""
        found: list[float | None] = json.loads(await self._line())["times"]
        return found

    async def passes(self, targets: Sequence[Where]) -> list[bool]:
        """Which of them let packets pass now."""
        found = await self._begin((), targets, 0)
        await self.times()
        return found

    async def _begin(self, closed: Sequence[Where], opened: Sequence[Where], limit: float) -> list[bool]:
        command = {"closed": closed, "open": opened, "limit": limit}
        assert self._process.handle.stdin is not None
        self._process.handle.stdin.write(json.dumps(command).encode() + b"\n")
        found: list[bool] = json.loads(await self._line())["before"]
        return found

    async def _line(self) -> bytes:
        assert self._process.handle.stdout is not None
        line = await self._process.handle.stdout.readline()
        if not line:
            raise Temporary(self._process.tail(), obj="prober", step="answer")
        return line
