"""What nodes and their daemons take over time, as a CSV for a plot; and what a node holds, by id."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

from nodelib.errors import NodewrightError
from tests.cluster.world import World, rss

_EVERY = 2.0  # seconds
_DAEMONS = ("containerd", "agent", "proxy")
_HEAD = ("seconds", "node", "what", "pid", "rss_bytes", "descriptors", "threads", "children")


@contextlib.asynccontextmanager
async def sampled(world: World, nodes: Sequence[str], path: str) -> AsyncIterator[None]:
    """During the block, write a line for each daemon every other second. pid 0 is the node: all its processes
    together, where `children` counts them; nothing is written if `path` is empty."""
    if not path:
        yield
        return
    with open(path, "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(_HEAD)
        began = time.monotonic()

        async def sample() -> None:
            while True:
                for node in nodes:
                    rows.writerows(await asyncio.to_thread(_sample, world, node, time.monotonic() - began))
                file.flush()
                await asyncio.sleep(_EVERY)

        task = asyncio.create_task(sample())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def _sample(world: World, node: str, at: float) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    every = _pids(world, node)
    parents = Counter(_parent(pid) for pid in every)
    total = 0
    for pid in every:
        with contextlib.suppress(OSError, StopIteration):
            total += rss(pid)
    found.append((f"{at:.1f}", node, "all processes", 0, total, "", "", len(every)))
    for daemon in _DAEMONS:
        if not (pid := world.pid(node, daemon)):
            continue
        with contextlib.suppress(OSError, StopIteration):
            files, threads = len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task"))
            found.append((f"{at:.1f}", node, daemon, pid, rss(pid), files, threads, parents[pid]))
    return found


async def held(world: World, node: str) -> Counter[str]:
    """Processes by command line, mount points, and rules of a node, beside what World.left() counts."""
    pid = await world.pid_once_running(node, "containerd")
    mounts = Path(f"/proc/{pid}/mountinfo").read_text().splitlines()
    rules = (await world.in_node(node, "iptables-save", check=False)).text.splitlines()
    tables = (await world.in_node(node, "nft", "list", "ruleset", check=False)).text.splitlines()
    return Counter(
        [
            *(f"process {words}" for one in _pids(world, node) if (words := _command(one))),
            *(f"mount {line.split()[4]}" for line in mounts),
            *(f"rule {line}" for line in rules if line.startswith("-A")),
            *(f"nftables {line.strip()}" for line in tables if "elements" in line or "chain" in line),
        ]
    )


async def nothing_held_beyond(world: World, node: str, before: Counter[str], seconds: float = 150) -> None:
    """Until the node holds only what it held before; what keeps a connection open for a while after a kill ends too."""
    deadline, more = time.monotonic() + seconds, Counter({"not asked": 1})
    while more:
        with contextlib.suppress(NodewrightError, OSError):
            more = await held(world, node) - before
        assert not more or time.monotonic() < deadline, "\n".join(more)
        await asyncio.sleep(0.5)


def _pids(world: World, node: str) -> list[int]:
    """Every process of the node, pods included, as the machine numbers them."""
    return sorted({int(word) for path in _cgroups(world, node) for word in _words(path)})


def _cgroups(world: World, node: str) -> Iterator[Path]:
    """One hierarchy has them all: cgroup v2, or any of v1."""
    for root in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/pids")):
        tree = root / f"{world.cluster.cgroup}/{node}".lstrip("/")
        for folder, _, files in os.walk(tree):  # folders that are removed meanwhile are left out
            if "cgroup.procs" in files:
                yield Path(folder, "cgroup.procs")


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []  # removed meanwhile


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def _parent(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        fields = []
    return int(fields[1]) if fields else 0
