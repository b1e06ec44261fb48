"""The worker of `bench network`: a process in a network namespace of its own that plays the runtime.

`python -m cli.bench.network_worker FOLDER nodewright|upstream ALONE TOGETHER` prints the call times as JSON;
`... FOLDER serve` is the node's CNI server, in a process of its own as on a node.
"""

from __future__ import annotations

import asyncio
import ctypes
import ipaddress
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cni.app import CniNode
from cni.model import NodeFacts
from cni.settings import CniSettings, conflist
from nodelib.command import run, run_sync
from nodelib.errors import Temporary

_CIDR = "10.244.0.0/22"  # more addresses than concurrent pods
_CLONE_NEWNET = 0x40000000
_PEER = {"type": "bridge", "bridge": "nw0", "isGateway": True, "hairpinMode": True, "ipMasq": False}
_START_SECONDS = 30


def settings(folder: Path) -> CniSettings:
    """Settings that keep everything of the node in `folder`."""
    return CniSettings(
        "bench",
        socket=str(folder / "cni.sock"),
        data_dir=str(folder / "data"),
        conf_file=str(folder / "10-nodewright.conflist"),
        bin_dir=str(folder / "bin"),
    )


async def serve(folder: Path) -> None:
    """Serve until SIGTERM."""

    async def not_known() -> frozenset[str] | None:
        return None

    node = CniNode(settings(folder), live_sandboxes=not_known)
    node.set_nodes([NodeFacts("bench", (), (ipaddress.ip_network(_CIDR),))])
    task = asyncio.ensure_future(node.run())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await asyncio.wait([task])


def new_namespace() -> int:
    """A descriptor of a new network namespace that nothing else holds. A thread makes it, because it moves into it."""
    made: list[int] = []

    def make() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(_CLONE_NEWNET) != 0:
            made.append(-ctypes.get_errno())
            return
        made.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC))

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if made[0] < 0:
        raise OSError(-made[0], os.strerror(-made[0]))
    return made[0]


class Runtime:
    """Executes one plugin, for pods that are only network namespaces."""

    def __init__(self, plugin: Path, conf: dict[str, Any], path: str) -> None:
        self._plugin, self._path = str(plugin), path
        self._stdin = json.dumps(conf).encode()

    def call(self, command: str, number: int, netns: int) -> float:
        """The seconds of one call, negative when the plugin refused it."""
        env = {
            "PATH": os.environ["PATH"],
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": f"pod{number}",
            "CNI_IFNAME": "eth0",
            "CNI_NETNS": f"/proc/{os.getpid()}/fd/{netns}",
            "CNI_PATH": self._path,
        }
        began = time.perf_counter()
        done = run_sync([self._plugin], stdin=self._stdin, env=env, check=False, timeout=120)
        seconds = time.perf_counter() - began
        if done.returncode != 0:
            print(done.text[:300], file=sys.stderr)
        return seconds if done.returncode == 0 else -seconds


def call_times(runtime: Runtime, alone: int, together: int) -> dict[str, object]:
    """Calls one after the other, then all at once; namespaces are made before the time is taken."""
    add, delete = [], []
    for number in range(alone + 5):
        netns = new_namespace()
        times = runtime.call("ADD", number, netns), runtime.call("DEL", number, netns)
        os.close(netns)
        if number >= 5:  # the first calls read the plugin from disk
            add.append(abs(times[0]))
            delete.append(abs(times[1]))
    spaces = [new_namespace() for _ in range(together)]
    began = time.perf_counter()
    with ThreadPoolExecutor(together or 1) as pool:
        results = list(pool.map(lambda item: runtime.call("ADD", 10_000 + item[0], item[1]), enumerate(spaces)))
    seconds = time.perf_counter() - began
    return {"add": add, "delete": delete, "together": seconds, "refused": sum(value < 0 for value in results)}


def main(argv: Sequence[str]) -> int:
    """The process's exit status. Raises Temporary when the CNI server does not start."""
    folder = Path(argv[0])
    if argv[1:] == ["serve"]:
        asyncio.run(serve(folder))
        return 0
    run_sync(["ip", "link", "set", "lo", "up"])
    if argv[1] == "upstream":
        ipam = {"type": "host-local", "ranges": [[{"subnet": _CIDR}]], "dataDir": str(folder / "ipam")}
        conf = _PEER | {"cniVersion": "1.0.0", "name": "bench", "ipam": ipam | {"routes": [{"dst": "0.0.0.0/0"}]}}
        there = "/usr/lib/cni"
        runtime = Runtime(Path(there, "bridge"), conf, there)
        print(json.dumps(call_times(runtime, int(argv[2]), int(argv[3]))))
        return 0
    print(json.dumps(asyncio.run(_with_server(folder, int(argv[2]), int(argv[3])))))
    return 0


async def _with_server(folder: Path, alone: int, together: int) -> dict[str, object]:
    every = conflist(settings(folder), (ipaddress.ip_network(_CIDR),))
    conf = {"cniVersion": "1.1.0", "name": every["name"], **every["plugins"][0]}
    server = asyncio.ensure_future(
        run([sys.executable, "-m", "cli.bench.network_worker", str(folder), "serve"], check=False, timeout=3600)
    )
    deadline = time.monotonic() + _START_SECONDS
    while not (folder / "10-nodewright.conflist").exists():
        if server.done() or time.monotonic() > deadline:
            why = server.result().stderr.decode(errors="replace")[-500:] if server.done() else "no .conflist"
            raise Temporary(why, obj="CNI server", step="start it for the bench")
        await asyncio.sleep(0.05)
    runtime = Runtime(folder / "bin" / "nodewright", conf, str(folder / "bin"))
    try:
        return await asyncio.to_thread(call_times, runtime, alone, together)
    finally:
        server.cancel()
        await asyncio.wait([server])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
