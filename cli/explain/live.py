"""`trace --live`: follows the first real connection between two places through the kernel, by nftrace.

A table of our own asks the kernel to report the packets of one connection. The table has an owner: the kernel removes
it when the process that made it ends, however it ends.
"""

from __future__ import annotations

import re

from cli.explain.facts import Facts
from cli.explain.places import Sender, Target
from controlplane.cluster.model import Cluster
from controlplane.machine.edge.nftrace import TABLE_PREFIX, Watch
from nodelib.clock import SystemClock

_LINE = re.compile(r"^trace id (?P<id>[0-9a-f]+) (?P<family>\S+) (?P<table>\S+) (?P<chain>\S+) (?P<rest>.*)$")
_COUNTER = re.compile(r"counter packets \d+ bytes \d+ ")
_ADDRESS = re.compile(r"(?<![0-9a-f.:])(?:\d{1,3}\.){3}\d{1,3}(?![0-9.])")
_QUIET = 1.0  # seconds without a report, after which the packet has passed


async def follow(cluster: Cluster, node: str, come: Sender, to: Target, facts: Facts, seconds: float) -> int:
    """Print the hops of one connection's first packet; exit status 1 when none came within `seconds`."""
    clock = SystemClock()
    deadline = clock.monotonic() + seconds
    # From outside, the source address is unknown, so any is accepted.
    source = "" if come.pod is None and not come.here else come.address
    async with Watch(cluster.namespace(node, "net"), source, to.address, to.port, to.protocol) as watch:
        print(
            f"On node {node}: waiting {seconds:g} s for a packet from {facts.named(source) or 'anywhere'} to "
            f"{facts.named(to.address)}:{to.port}/{to.protocol}",
            flush=True,
        )
        chosen, seen = "", False
        while (left := deadline - clock.monotonic()) > 0:
            line = await watch.line(min(left, _QUIET) if seen else left)
            if line is None:
                break
            found = _LINE.match(line)
            if found is None or (chosen and found["id"] != chosen):
                continue
            chosen, seen = found["id"], True
            if found["table"].startswith(TABLE_PREFIX):
                continue
            print(hop_text(found["family"], found["table"], found["chain"], found["rest"], facts), flush=True)
    if not seen:
        print("No such packet was seen." + ("" if source else " (It may pass a bridge or another node.)"))
    return 0 if seen else 1


def hop_text(family: str, table: str, chain: str, rest: str, facts: Facts) -> str:
    """One line of `nft monitor trace`, with a name after each known address."""
    words = " ".join(_COUNTER.sub("", rest).split())
    return f"  {family} {table} {chain}: " + _ADDRESS.sub(lambda one: facts.named(one[0]), words)
