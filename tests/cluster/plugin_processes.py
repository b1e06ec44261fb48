"""CSI, DRA and device plugins as processes on a node, where their DaemonSets would run them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.plugins.edge.apis import POD_RESOURCES
from agent.plugins.edge.rpc import PluginClient
from controlplane.machine.edge.namespaces import in_node
from nodelib.json_values import Json
from tests.cluster.world import World

_ROOT = Path(__file__).parents[2]
REGISTRY = "/var/lib/kubelet/plugins_registry"


@dataclass
class Plugin:
    """A running plugin; `calls()` is what the driver was asked so far."""

    process: asyncio.subprocess.Process
    folder: Path

    def calls(self, name: str = "") -> list[Json]:
        file = self.folder / "calls.jsonl"
        found = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        return [one for one in found if name in ("", one["call"])]

    def fail(self, **codes: str) -> None:
        """Let these methods fail with these gRPC codes; none: all work."""
        (self.folder / "fail").write_text(json.dumps(codes))

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Its group is nsenter(1) here and the plugin in the node's PID namespace."""
        group = self.process.pid
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, number)
        await self.process.wait()
        async with asyncio.timeout(30):
            with contextlib.suppress(ProcessLookupError):
                while True:
                    os.killpg(group, 0)
                    await asyncio.sleep(0.01)


async def start(world: World, node: str, folder: Path, *argv: str, says: bytes = b"") -> Plugin:
    """Run a command in the node's namespaces; with `says` until it says that."""
    process = await asyncio.create_subprocess_exec(
        *in_node(world.cluster.namespaces(node), ["env", f"--chdir={_ROOT}", *argv]),
        stdout=asyncio.subprocess.PIPE,
        stdin=asyncio.subprocess.DEVNULL,
        stderr=None if says else asyncio.subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        start_new_session=True,
    )
    assert process.stdout is not None
    async with asyncio.timeout(60):
        while says and says not in (line := await process.stdout.readline()):
            assert line, f"{argv} ended"
    return Plugin(process, folder)


@contextlib.asynccontextmanager
async def csi_driver(world: World, node: str, name: str, *options: str) -> AsyncIterator[Plugin]:
    """The hostpath driver; its folder lies where the node's mount namespace sees it too."""
    plugin = await start_csi(world, node, name, *options)
    try:
        yield plugin
    finally:
        await plugin.stop()


async def start_csi(world: World, node: str, name: str, *options: str) -> Plugin:
    inside = f"/var/lib/kubelet/plugins/{name}"
    argv: Sequence[str] = ("-m", "tests.fakes.csi_hostpath", "--name", name, "--root", inside, "--registry", REGISTRY)
    folder = Path(world.cluster.node_dir(node), "kubelet/plugins", name)
    return await start(world, node, folder, sys.executable, *argv, *options, says=b"serving")


async def pod_resources(world: World, node: str, method: str, **fields: str) -> Json:
    """What the podresources API of a node answers."""
    socket = Path(world.cluster.node_dir(node), "kubelet/pod-resources/kubelet.sock")
    client = PluginClient(POD_RESOURCES, "podresources", str(socket))
    try:
        return await client.call(f"PodResourcesLister.{method}", fields, timeout=10)
    finally:
        await client.close()
