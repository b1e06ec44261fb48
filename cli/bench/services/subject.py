"""A proxy under measurement: started in a namespace of its own; its metrics, CPU time and memory."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from cli.bench.services.objects import POD_RANGE
from cli.project import PROJECT
from controlplane.cluster.edge.lab import Lab, Process, Space
from nodelib.clock import Clock
from nodelib.errors import Permanent, Temporary

NODE = "bench"
NODE_ADDRESS = "192.0.2.7"
SYNC = "kubeproxy_sync_proxy_rules_duration_seconds"
LAST = "kubeproxy_sync_proxy_rules_last_timestamp_seconds"
_SAMPLE = re.compile(r'^([a-z_]+)\{[^}]*ip_family="IPv4"[^}]*\} ([0-9.e+-]+)$', re.MULTILINE)
_TICKS = os.sysconf("SC_CLK_TCK")
_PEER = str(Path(__file__).with_name("peer.py"))


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds of a process and its ended children, and its resident memory in MiB."""

    cpu: float
    rss: float


def cost(pid: int) -> Cost:
    """Read from /proc. Raises OSError when the process has ended."""
    fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return Cost(sum(map(int, fields[11:15])) / _TICKS, pages * os.sysconf("SC_PAGE_SIZE") / 2**20)


class Peer:
    """peer.py running as a client inside a namespace; it takes one command at a time."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def ask(self, request: dict[str, Any]) -> Any:
        """The answer to one command of peer.py."""
        handle = self._process.handle
        assert handle.stdin is not None and handle.stdout is not None
        handle.stdin.write(json.dumps(request).encode() + b"\n")
        line = await handle.stdout.readline()
        if not line:
            raise Temporary(self._process.tail(), obj="bench peer", step=f"answer {next(iter(request))}")
        return json.loads(line)


async def start_peer(lab: Lab, space: Space, *argv: str) -> Process:
    """Start peer.py inside `space`; it is ready when this returns. Raises Permanent."""
    line = space.inside(sys.executable, "-IS", _PEER, *argv)
    process = await lab.spawn(f"peer-{space.name}", line, pipes=True)
    # The answer to thousands of connects is a single line.
    assert process.handle.stdout is not None
    process.handle.stdout._limit = 1 << 24  # type: ignore[attr-defined]
    space.processes.append(process)
    ready = await process.handle.stdout.readline()
    if ready != b"READY\n":
        raise Permanent(process.tail(), obj="bench peer", step="start")
    return process


class Subject:
    """One proxy; `maker` is "nodewright" or "upstream". close() ends it and removes its namespace with all rules."""

    def __init__(self, lab: Lab, maker: str, mode: str, binary: Path, clock: Clock) -> None:
        self.maker, self.mode = maker, mode
        self.started = 0.0  # wall seconds
        self._lab, self._binary, self._clock = lab, binary, clock
        self._space: Space | None = None
        self._process: Process | None = None

    @property
    def space(self) -> Space:
        assert self._space is not None
        return self._space

    @property
    def process(self) -> Process:
        assert self._process is not None
        return self._process

    async def open(self, number: int, pods: Space) -> None:
        """Make the namespace with a route to the pods; the proxy is not started yet."""
        self._space = await self._lab.space(f"{self.maker}-{self.mode}-{number}", number)
        await self.space.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
        await self.space.run("ip", "route", "add", POD_RANGE, "via", pods.address)
        # The Node's address: all subjects play the same node.
        await self.space.run("ip", "addr", "add", f"{NODE_ADDRESS}/32", "dev", "lo")

    async def start(self) -> None:
        """Start the proxy with its default intervals."""
        kubeconfig = self._lab.folder / "kubeconfig"
        kubeconfig.write_text(json.dumps(_kubeconfig(self._lab)))
        path = self._lab.folder / f"{self.space.name}.yaml"
        path.write_text(json.dumps(_config(self.mode, str(kubeconfig))))
        argv = [sys.executable, "-m", "proxy"] if self.maker == "nodewright" else [str(self._binary)]
        self.started = self._clock.now()
        self._process = await self._lab.spawn(
            self.space.name, self.space.inside(*argv, f"--config={path}"), cwd=str(PROJECT)
        )

    async def metrics(self) -> dict[str, float]:
        """Its IPv4 metrics by name; empty while it does not answer. Raises Permanent when it has ended."""
        if not self.process.running:
            raise Permanent(self.process.tail(), obj=f"{self.maker} {self.mode}", step="run")
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session,
                session.get(f"http://{self.space.address}:10249/metrics") as response,
            ):
                text = await response.text()
        except (aiohttp.ClientError, OSError, TimeoutError):
            return {}
        return {name: float(value) for name, value in _SAMPLE.findall(text) if "bucket" not in name}

    async def synced(self, timeout: float) -> dict[str, float]:
        """Wait for the first sync, at most `timeout` seconds; the metrics after it. Raises Temporary."""
        deadline = self._clock.monotonic() + timeout
        while self._clock.monotonic() < deadline:
            metrics = await self.metrics()
            if metrics.get(f"{SYNC}_count") and metrics.get(LAST):
                return metrics
            await asyncio.sleep(0.5)  # a scrape costs the proxy CPU time too
        raise Temporary(
            f"no sync within {timeout:g} s: {self.process.tail()}", obj=f"{self.maker} {self.mode}", step="cold sync"
        )

    def cost(self) -> Cost:
        return cost(self.process.pid)

    async def leave(self) -> None:
        """Stop the proxy; its namespace and rules remain."""
        if self._process is not None:
            await self._process.stop()

    async def close(self) -> None:
        await self.leave()
        if self._space is not None:
            await self._lab.drop(self._space)


def _config(mode: str, kubeconfig: str) -> dict[str, Any]:
    # These sysctls are read-only in a network namespace that is not the first.
    untouched = {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"}
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": mode,
        "hostnameOverride": NODE,
        "clientConnection": {"kubeconfig": kubeconfig},
        "clusterCIDR": POD_RANGE,
        "metricsBindAddress": "0.0.0.0:10249",
        "conntrack": untouched,
    }


def _kubeconfig(lab: Lab) -> dict[str, Any]:
    access = lab.access
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": access.server, "insecure-skip-tls-verify": True}}],
        "users": [{"name": "u", "user": {"token": access.token}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
