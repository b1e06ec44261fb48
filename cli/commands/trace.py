"""`nodewright trace`: the path of a packet through the rules that the nodes' kernels have now."""

from __future__ import annotations

import asyncio
import json

from cli.clusters import find
from cli.errors import need_root
from cli.explain import paths_text, places, read, walk
from cli.explain.live import follow
from nodelib.errors import Invalid


def run(
    name: str, come: str, to: str, *, namespace: str, protocol: str, outside: str, output: str, live: float
) -> None:
    """Print the path in the format `output` (text, verbose, json); exit status 1 when the packet cannot arrive."""
    need_root("trace")
    raise SystemExit(asyncio.run(_run(name, come, to, namespace, protocol, outside, output, live)))


async def _run(
    name: str, come: str, to: str, namespace: str, protocol: str, outside: str, output: str, live: float
) -> int:
    cluster = find(name)
    facts = await read.facts(cluster)
    sender = places.sender(come, facts, namespace, outside or cluster.host_address)
    target = places.target(to, facts, namespace, sender, protocol)
    if (":" in sender.address) != (":" in target.address):
        raise Invalid(
            f"{facts.named(sender.address)} and {facts.named(target.address)} are addresses of different IP versions",
            obj=to,
            step="trace a packet",
            action="Give an address of the same IP version as the sender's.",
        )
    node = walk.first_node(sender, target, facts)
    if live:
        return await follow(cluster, node, sender, target, facts, live)
    found, notes = await read.paths(cluster, sender, target, facts)
    if output == "json":
        print(json.dumps(paths_text.as_json(found, facts), indent=1))
    else:
        for line in [*paths_text.lines(sender, target, found, facts, node, verbose=output == "verbose"), *notes]:
            print(line)
    return 0 if any(path.arrived for path in found) else 1
