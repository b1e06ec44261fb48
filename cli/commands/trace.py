"""`nodewright trace`: the path of a packet through the rules that the nodes' kernels have now."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module

from cli.clusters import find
from cli.errors import need_root
from cli.explain import paths_text, places, read, walk
from cli.explain.facts import Facts
from controlplane.cluster.model import Cluster
from nodelib.errors import Invalid
from nodelib.text import one_line

_LINE = 4000  # bytes of a printed line


@dataclass(frozen=True, slots=True)
class _Question:
    """What the user asks: `outside` "" for this machine's address, `live` 0 for the rules instead of a connection."""

    come: str
    to: str
    namespace: str
    protocol: str
    outside: str
    output: str
    live: float


def run(
    name: str, come: str, to: str, *, namespace: str, protocol: str, outside: str, output: str, live: float
) -> None:
    """Print the path in the format `output` (text, verbose, json); exit status 1 when the packet cannot arrive."""
    need_root("trace")
    question = _Question(come, to, namespace, protocol, outside, output, live)
    raise SystemExit(asyncio.run(_run(find(name), question)))


async def _run(cluster: Cluster, asked: _Question) -> int:
    # The API server, the kernels and the netlink library each take their time: all of them at once.
    version = cluster.families[0]
    begun = {version: read.kernels(cluster, [node.name for node in cluster.nodes], version)}
    try:
        facts, _ = await asyncio.gather(read.facts(cluster), asyncio.to_thread(import_module, "pyroute2"))
        return await _answer(cluster, facts, begun, asked)
    finally:
        begun[version].cancel()
        await asyncio.gather(begun[version], return_exceptions=True)


async def _answer(cluster: Cluster, facts: Facts, begun: Mapping[int, read.Kernels], asked: _Question) -> int:
    outside = asked.outside or cluster.host_address
    sender = places.sender(asked.come, facts, asked.namespace, outside, cluster.domain)
    target = places.target(asked.to, facts, asked.namespace, sender, asked.protocol, cluster.domain)
    if (":" in sender.address) != (":" in target.address):
        raise Invalid(
            f"{facts.named(sender.address)} and {facts.named(target.address)} are addresses of different IP versions",
            obj=asked.to,
            step="trace a packet",
            action="Give an address of the same IP version as the sender's.",
        )
    node = walk.first_node(sender, target, facts)
    found, notes = await read.paths(cluster, sender, target, facts, begun)
    if asked.live:
        from cli.explain.live import follow

        return await follow(cluster, sender, target, found, facts, asked.live, as_json=asked.output == "json")
    if asked.output == "json":
        print(json.dumps(paths_text.as_json(found, facts), indent=1))
    else:
        verbose = asked.output == "verbose"
        shown = paths_text.lines(sender, target, found, facts, node, verbose=verbose, cluster=cluster.name)
        for line in [*shown, *notes]:
            print(one_line(line, _LINE))
    return 0 if any(path.arrived for path in found) else 1
