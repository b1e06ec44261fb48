"""`nodewright trace`: the path of a packet through the rules that the nodes' kernels have now."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass

from cli.clusters import reachable
from cli.errors import need_root
from cli.explain import paths_text, places, read, walk
from cli.explain.facts import Facts
from controlplane.cluster.model import Cluster
from controlplane.machine.edge.netlink import ip_route
from nodelib.errors import Invalid
from nodelib.text import one_line

_LINE = 4000  # bytes of a printed line


@dataclass(frozen=True, slots=True)
class _Question:
    """What the user asks: `outside` "" for this machine's address, `live` 0 for the rules instead of a connection."""

    source: str
    to: str
    namespace: str
    protocol: str
    outside: str
    output: str
    live: float


def run(
    name: str, source: str, to: str, *, namespace: str, protocol: str, outside: str, output: str, live: float
) -> None:
    """Print the path in the format `output` (text, verbose, json); exit status 1 when the packet cannot arrive."""
    need_root("trace")
    question = _Question(source, to, namespace, protocol, outside, output, live)
    raise SystemExit(asyncio.run(_run(reachable(name), question)))


async def _run(cluster: Cluster, asked: _Question) -> int:
    walked = await walk_of(cluster, asked.source, asked.to, asked.namespace, asked.protocol, asked.outside)
    if asked.live:
        from cli.explain.live import follow

        return await follow(
            cluster,
            walked.sender,
            walked.target,
            walked.paths,
            walked.facts,
            asked.live,
            as_json=asked.output == "json",
        )
    if asked.output == "json":
        print(json.dumps(paths_text.as_json(walked.paths, walked.facts), indent=1))
    else:
        verbose = asked.output == "verbose"
        shown = paths_text.lines(
            walked.sender,
            walked.target,
            walked.paths,
            walked.facts,
            walked.node,
            verbose=verbose,
            cluster=cluster.name,
        )
        for line in [*shown, *walked.notes]:
            print(one_line(line, _LINE))
    return 0 if any(path.arrived for path in walked.paths) else 1


@dataclass(frozen=True, slots=True)
class Walked:
    """A packet's possible paths. `node`: whose rules it meets first."""

    sender: places.Sender
    target: places.Target
    node: str
    paths: list[walk.Path]
    notes: list[str]
    facts: Facts


async def walk_of(
    cluster: Cluster,
    source: str,
    to: str,
    namespace: str = "default",
    protocol: str = "",
    outside: str = "",
    known: Facts | None = None,
) -> Walked:
    """Read the rules, the routes and, unless they are `known`, the objects, and follow the packet through them."""
    # The API server, the kernels and the netlink library each take their time: all of them at once.
    version = cluster.families[0]
    begun = {version: read.kernels(cluster, [node.name for node in cluster.nodes], version)}
    try:
        facts, _ = await asyncio.gather(_facts(cluster, known), asyncio.to_thread(ip_route))
        sender = places.sender(source, facts, namespace, outside or cluster.host_address, cluster.domain)
        target = places.target(to, facts, namespace, sender, protocol, cluster.domain)
        if (":" in sender.address) != (":" in target.address):
            raise Invalid(
                f"{facts.named(sender.address)} and {facts.named(target.address)} are addresses of different IP"
                " versions",
                obj=to,
                step="trace a packet",
                action="Give an address of the same IP version as the sender's.",
            )
        found, notes = await read.paths(cluster, sender, target, facts, begun)
        return Walked(sender, target, walk.first_node(sender, target, facts), found, notes, facts)
    finally:
        begun[version].cancel()
        await asyncio.gather(begun[version], return_exceptions=True)


async def _facts(cluster: Cluster, known: Facts | None) -> Facts:
    return known if known is not None else await read.facts(cluster)
