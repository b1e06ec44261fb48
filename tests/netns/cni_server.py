"""A node's pod network in a separate process, built as the daemon builds it, for tests that kill it.

`python -m tests.netns.cni_server CONFIG`: CONFIG has {"settings": {...}, "nodes": [...], "live": [...] or null} and is
read again on SIGHUP.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from ipaddress import ip_address, ip_network
from pathlib import Path

from cni.app import CniNode
from cni.model import NodeFacts
from cni.settings import CniSettings
from nodelib.json_values import Json

_NETWORKS = ("pod_cidrs", "cluster_cidrs", "non_masquerade")


def settings_of(raw: Json) -> CniSettings:
    given: Json = {key: tuple(map(ip_network, value)) if key in _NETWORKS else value for key, value in raw.items()}
    return CniSettings(**given)


def nodes_of(raw: list[Json]) -> list[NodeFacts]:
    return [
        NodeFacts(
            item["name"],
            tuple(map(ip_address, item.get("ips", ()))),
            tuple(map(ip_network, item.get("cidrs", ()))),
        )
        for item in raw
    ]


async def main(path: Path) -> None:
    config = json.loads(path.read_text())

    async def live() -> frozenset[str] | None:
        known = json.loads(path.read_text()).get("live")
        return None if known is None else frozenset(known)

    node = CniNode(settings_of(config["settings"]), live_sandboxes=live)

    def reread() -> None:
        nodes = json.loads(path.read_text())["nodes"]
        if nodes is not None:
            node.set_nodes(nodes_of(nodes))
        node.network.poke()

    task = asyncio.ensure_future(node.run())
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, reread)
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    reread()
    try:
        await task
    except asyncio.CancelledError:
        if config.get("uninstall"):
            await node.uninstall()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(name)s %(message)s")
    asyncio.run(main(Path(sys.argv[1])))
