"""Prepares `bench services` and `bench soak`: pods that answer, and an API server with many objects."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import aiohttp

from cli.bench.services import objects
from cli.bench.services.objects import PROBE_ADDRESS, TARGET_PORT, Size
from cli.bench.services.subject import NODE, NODE_ADDRESS, start_peer
from controlplane.cluster.edge.lab import Lab, Space
from nodelib.errors import Invalid
from nodelib.json_values import Json


async def answering_pods(lab: Lab) -> Space:
    """A namespace that has every pod's address. PROBE_ADDRESS accepts connections, all others refuse them."""
    pods = await lab.space("pods", 0)
    await pods.run("ip", "route", "add", "local", objects.POD_RANGE, "dev", "lo")
    await start_peer(lab, pods, "serve", PROBE_ADDRESS, str(TARGET_PORT))
    return pods


async def populate(lab: Lab, size: Size, say: Callable[[str], None]) -> None:
    """Start etcd and the API server with the Services of `size` in place. Raises Invalid when etcd refuses them."""
    say("etcd")
    url = await lab.start_etcd(Path(tempfile.mkdtemp(dir=lab.folder)))
    async with aiohttp.ClientSession() as session:
        for count, body in enumerate(objects.transactions(size)):
            say(f"{count * 1000:,} objects")
            async with session.post(f"{url}/v3/kv/txn", json=body) as answer:
                if answer.status != 200:
                    raise Invalid((await answer.text())[:500], obj="etcd", step="write objects")
    say("API server")
    await lab.start_api_server()


def node_object() -> Json:
    """The Node that every measured proxy runs on."""
    return {
        "metadata": {"name": NODE},
        "status": {"addresses": [{"type": "InternalIP", "address": NODE_ADDRESS}]},
    }
