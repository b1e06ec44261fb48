"""`trace --live`: follows the first real connection between two places through the kernels of all nodes, by nftrace.

A table of our own asks each kernel to report the packets of one connection. The table has an owner: the kernel removes
it when the process that made it ends, however it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict

from cli.explain import read
from cli.explain.facts import Facts
from cli.explain.live_walk import LiveWalk
from cli.explain.places import Sender, Target
from cli.explain.walk import Path, split
from controlplane.cluster.advice import ours
from controlplane.cluster.model import Cluster
from controlplane.machine.edge.namespaces import mount_points
from controlplane.machine.edge.nftrace import TABLE_PREFIX, Match, Watch
from nodelib.clock import SystemClock
from nodelib.errors import NotFound
from nodelib.text import one_line

_QUIET = 1.0  # seconds without a report, after which a packet that is at its end has passed
_LATE = 4.0  # seconds that another node may take to report a packet that was sent to it
_MOST_ENDS = 64
_LINE = 2000  # bytes of a printed line


async def follow(
    cluster: Cluster, sender: Sender, to: Target, found: Iterable[Path], facts: Facts, seconds: float, *, as_json: bool
) -> int:
    """Print the hops of one connection's first packet on every node, and its end; exit status 0 when it arrived."""
    points = set(mount_points())
    nodes = [node.name for node in cluster.nodes if cluster.namespace(node.name, "net") in points]
    if not nodes:
        raise NotFound(
            "no node of it is on this machine",
            obj=f"cluster {cluster.name}",
            step="follow a connection",
            action=f"Repair it with {ours(cluster.name, 'up')}.",
        )
    # From outside, the source address is unknown, so any is accepted.
    source = "" if sender.pod is None and not sender.here else sender.address
    walk = LiveWalk(source, to.address, to.port, TABLE_PREFIX, facts)
    matches = matching(source, to, found, facts)
    async with contextlib.AsyncExitStack() as stack:
        watches = {node: Watch(cluster.namespace(node, "net"), matches) for node in nodes}
        await asyncio.gather(*(stack.enter_async_context(one) for one in watches.values()))
        if not as_json:
            way = f"from {facts.named(source) or 'anywhere'} to {facts.named(to.address)}:{to.port}/{to.protocol}"
            print(f"On {', '.join(nodes)}: waiting {seconds:g} s for a packet {way}", flush=True)
        await _watch(walk, watches, seconds)
    end, lines = walk.end(nodes, read.listening(cluster, facts)), walk.lines()
    if as_json:
        print(json.dumps({**asdict(end), "arrived": end.arrived, "hops": lines}, indent=1))
    else:
        for line in (*(f"  {one}" for one in lines), end.word, *(f"  {one}" for one in end.why)):
            print(one_line(line, _LINE))
    return 0 if end.arrived else 1


def matching(source: str, to: Target, found: Iterable[Path], facts: Facts) -> list[Match]:
    """The packet as it is sent, and as it is after each translation that is possible."""
    ends = {split(path.to) for path in found if path.to}
    for one in facts.slices_of(to.service) if to.service is not None else []:
        for entry in one.get("endpoints") or []:
            ends |= {
                (str(address), int(port["port"]))
                for address in entry.get("addresses") or []
                for port in one.get("ports") or []
                if port.get("port")
            }
    version = ":" in to.address
    ends = {one for one in ends if is_ip(one[0])}  # nft would look a name up
    others = sorted(one for one in ends - {(to.address, to.port)} if (":" in one[0]) == version)
    # Where its destination is translated, its source may be.
    first = Match(source if not others else "", to.address, to.port, to.protocol)
    return [first, *(Match("", address, port, to.protocol) for address, port in others[:_MOST_ENDS])]


def is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


async def _watch(walk: LiveWalk, watches: Mapping[str, Watch], seconds: float) -> None:
    """Hand on what the kernels report, until the packet is at its end, or for as long as the user waits for one."""
    clock = SystemClock()
    deadline = clock.monotonic() + seconds
    waiting = {asyncio.ensure_future(one.line()): node for node, one in watches.items()}
    try:
        while waiting and (left := deadline - clock.monotonic()) > 0:
            patience = left if not walk.seen else _QUIET if walk.settled() else _LATE
            done, _ = await asyncio.wait(waiting, timeout=min(left, patience), return_when=asyncio.FIRST_COMPLETED)
            if not done:
                return
            for one in done:
                node, line = waiting.pop(one), one.result()
                if line is None:
                    continue
                waiting[asyncio.ensure_future(watches[node].line())] = node
                walk.feed(node, line)
    finally:
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
