"""Reads what the folder of a bug report holds: the ends of files, what commands print, lists of the API server."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from cli.project import PROJECT
from controlplane.cluster import advice
from controlplane.cluster.model import Cluster
from controlplane.machine.edge import cgroups
from controlplane.machine.edge.namespaces import alone_in_node, is_bound
from nodelib import command
from nodelib.errors import Invalid, Temporary
from nodelib.files import text_of
from nodelib.json_values import Json
from nodelib.kube.client import KubeClient
from nodelib.kube.listing import pages

MOST = 2 << 20  # bytes of one file or output; of a longer log the end is kept
_SECONDS = 20.0
_COMMAND_SECONDS = 40.0
_GROUPS = 2000
_CUT = 8192  # characters of a line without end: longer than a secret
_OBJECTS = 2000
_PAGE = 100
_MOST_ANSWERS = 64 << 20  # characters of all pages of a list
_COUNTERS = (
    "memory.current memory.max memory.usage_in_bytes memory.limit_in_bytes memory.events cpu.max cpu.stat "
    "cpu.cfs_quota_us cpu.shares cpu.weight pids.current pids.max"
)


def end_of(path: str) -> str:
    """The end of a regular file; links are not followed. Raises Invalid."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise Invalid(error.strerror or str(error), obj=path) from error
    with open(number, "rb") as file:
        found = os.fstat(number)
        if not stat.S_ISREG(found.st_mode):
            raise Invalid("it is not a file", obj=path)
        file.seek(max(0, found.st_size - MOST))
        text = file.read(MOST).decode(errors="replace")
    if found.st_size <= MOST:
        return text
    # Not from the middle of a line: what is left of a secret is not recognized.
    whole = text.partition("\n")[2] or text[_CUT:]
    return f"(the last {len(whole)} of {found.st_size} bytes)\n{whole}"


async def on_node(cluster: Cluster, node: str, argv: Sequence[str]) -> str:
    """What a command prints on a node. Raises Temporary when the node is down."""
    if not is_bound(cluster.namespace(node, "pid")):
        raise Temporary("is not running", obj=node, action=f"{advice.ours(cluster.name, 'up')} starts it.")
    return await printed(alone_in_node(cluster.namespaces(node), argv), seconds=_SECONDS)


async def ours(*words: str) -> str:
    """What one of our own commands prints, whatever its exit status."""
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "COLUMNS": "120"}
    # -P: no module of the current directory, which may be another user's.
    argv = [sys.executable, "-P", "-m", "cli", *words]
    return await printed(argv, seconds=_COMMAND_SECONDS, environment=environment, statuses=(0, 1))


async def printed(
    argv: Sequence[str],
    *,
    seconds: float = _SECONDS,
    environment: Mapping[str, str] | None = None,
    statuses: Sequence[int] = (0,),
) -> str:
    """Output and errors of a command, up to MOST bytes. Raises Temporary for other statuses, or when it hangs."""
    with tempfile.TemporaryDirectory(prefix="nodewright-export-") as folder:
        file = Path(folder, "out")
        # In a file of limited size (in blocks of 512 bytes): the rules of a big cluster need not fit into memory.
        script = f'ulimit -f {MOST // 512}; exec "$@" > "$0" 2>&1'
        done = await command.run(["sh", "-c", script, str(file), *argv], timeout=seconds, env=environment, check=False)
        text = file.read_text(errors="replace") if file.exists() else done.stderr.decode(errors="replace")
    full = len(text) >= MOST
    if full:
        text = text.rpartition("\n")[0] or text[:-_CUT]
    if done.returncode not in statuses and not full:
        raise Temporary(f"exit status {done.returncode}: {text.strip()[-2000:]}", step=" ".join(argv[-6:]))
    return text


async def listed(client: KubeClient, path: str, most: int = _OBJECTS) -> tuple[list[Json], bool]:
    """The objects of a list, at most so many, and whether they are all of them. Raises NodewrightError."""
    found, size = list[Json](), 0
    async for page in pages(client, path, most, _PAGE):
        found += [{**one, "kind": page.kind} for one in page.items]
        if page.last or not page.items:
            return found, page.last
        size += await asyncio.to_thread(_size, page.items)
        if len(found) >= most or size >= _MOST_ANSWERS:
            break
    return found, False


def _size(items: list[Json]) -> int:
    return len(json.dumps(items))


def groups(cluster: Cluster) -> str:
    """The counters of the cluster's cgroups, a line each."""
    lines = []
    for root in cgroups.hierarchies().roots:
        top = f"{root}{cluster.cgroup}"
        for place, (folder, inner, files) in enumerate(os.walk(top)):
            if place == _GROUPS:
                lines.append(f"{top}: there are more than {_GROUPS} groups")
                break
            inner.sort()
            for name in sorted(set(files).intersection(_COUNTERS.split())):
                value = " ".join(text_of(f"{folder}/{name}").split())
                lines.append(f"{folder} {name}: {value}")
    return "\n".join(lines) + "\n"
