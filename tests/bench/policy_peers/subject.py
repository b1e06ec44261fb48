"""One maker on its node: started, stopped, and what memory it takes."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path

from cli.project import PROJECT
from controlplane.cluster.edge.lab import Lab, Process
from controlplane.machine.edge import cgroups
from nodelib.errors import Permanent
from tests.bench.policy_peers import world as worlds
from tests.bench.policy_peers.makers import Maker
from tests.bench.policy_peers.world import Prober, World

_MIB = 1 << 20
_JOIN = 'for one in $0; do echo $$ > "$one/cgroup.procs"; done; exec "$@"'


class Subject:
    """close() removes everything, the maker's rules with its namespace."""

    def __init__(self, maker: Maker, binary: Path, world: World, prober: Prober) -> None:
        self.maker, self.world, self.prober = maker, world, prober
        self.started = 0.0  # monotonic
        self._binary = binary
        self._process: Process | None = None
        self._trees = cgroups.hierarchies()
        self._group = f"/nodewright-bench-{os.getpid()}-{world.name}"
        made = cgroups.ensure(self._trees, self._group)
        self._folders = [one for one in made if Path(one, "memory.stat").exists()]

    @classmethod
    async def make(cls, lab: Lab, maker: Maker, binary: Path, number: int, addresses: Sequence[str]) -> Subject:
        world = await worlds.make(lab, maker.name, number, addresses)
        return cls(maker, binary, world, await Prober.start(world))

    async def start(self, selected: Sequence[str]) -> None:
        """`selected`: the addresses of pods that policies select."""
        start = await self.maker.start(self.world, self._binary, selected)
        settings = [f"{name}={value}" for name, value in start.env.items()]
        argv = ["sh", "-c", _JOIN, " ".join(self._folders), "env", *settings, *start.argv]
        self.started = time.monotonic()
        line = self.world.node.inside(*argv)
        self._process = await self.world.lab.spawn(self.maker.name, line, cwd=str(PROJECT))

    async def settle(self, seconds: float) -> None:
        """Give it time for what no packet shows."""
        await asyncio.sleep(seconds)
        self.check()

    def check(self) -> None:
        """Raises Permanent if it has ended."""
        if self._process is None or not self._process.running:
            log = self._process.tail() if self._process else "not started"
            raise Permanent(log, obj=self.maker.name, step="run")

    def resident(self) -> dict[str, float]:
        """MiB, of the process: now, and the most so far."""
        self.check()
        assert self._process is not None
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        found = dict(line.split(":", 1) for line in lines)
        return {name: int(found[key].split()[0]) / 1024 for name, key in (("now", "VmRSS"), ("most", "VmHWM"))}

    def group_peak(self) -> float | None:
        """MiB, the most that all of its processes had at a time, and the kernel for them."""
        return self._read("memory.max_usage_in_bytes", "memory.peak")

    def kernel(self) -> float | None:
        """MiB that the kernel has for it: once its process has ended, its rules."""
        found = self._read("memory.kmem.usage_in_bytes")
        if found is None and self._folders:
            lines = Path(self._folders[0], "memory.stat").read_text().splitlines()
            bytes_of = dict(line.split() for line in lines)
            found = int(bytes_of["kernel"]) / _MIB if "kernel" in bytes_of else None
        return found

    async def stop(self) -> None:
        """Its rules remain."""
        if self._process is not None:
            await self._process.stop()

    async def close(self) -> None:
        await self.stop()
        await self.world.close()
        cgroups.kill_all(self._trees, self._group)
        cgroups.remove(self._trees, self._group)

    def _read(self, *names: str) -> float | None:
        for path in (Path(folder, name) for folder in self._folders for name in names):
            if path.exists():
                return int(path.read_text()) / _MIB
        return None
