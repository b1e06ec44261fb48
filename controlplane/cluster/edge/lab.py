"""A bare etcd and kube-apiserver with namespaces beside them, for measurements: no nodes, no controllers.

`enter()` moves this process into a new network namespace. Everything made here disappears with the process: the kernel
kills every child, and a namespace lives only as long as the process that holds it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import secrets
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from nodelib import command
from nodelib.clock import Clock
from nodelib.errors import Permanent, Temporary
from nodelib.kube.access import ClusterAccess

ADDRESS = "10.89.250.1"
_BRIDGE = "lab0"
_CLONE_NEWNET = 0x40000000
_READY = 60.0  # seconds


def enter() -> None:
    """Move this process into a new network namespace, before any thread or event loop starts. Raises Permanent."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise Permanent(reason, obj="network namespace", step="unshare", action="Run it as root.")


@dataclass(slots=True)
class Process:
    """A child that dies with this process; its output goes to `log`."""

    name: str
    handle: asyncio.subprocess.Process
    log: Path

    @property
    def pid(self) -> int:
        return self.handle.pid

    @property
    def running(self) -> bool:
        return self.handle.returncode is None

    def tail(self, size: int = 1500) -> str:
        return self.log.read_text(errors="replace")[-size:]

    async def stop(self, seconds: float = 10) -> None:
        """SIGTERM, then SIGKILL."""
        with contextlib.suppress(ProcessLookupError):
            self.handle.terminate()
        try:
            async with asyncio.timeout(seconds):
                await self.handle.wait()
        except TimeoutError:
            self.handle.kill()
            await self.handle.wait()


@dataclass(slots=True)
class Space:
    """A network namespace on the lab's bridge, held by a process."""

    name: str
    address: str
    holder: asyncio.subprocess.Process
    processes: list[Process] = field(default_factory=list)

    @property
    def path(self) -> str:
        return f"/proc/{self.holder.pid}/ns/net"

    def inside(self, *argv: str) -> list[str]:
        return ["nsenter", f"--net={self.path}", *argv]

    async def run(self, *argv: str, timeout: float = 60, check: bool = True) -> command.Completed:
        return await command.run(self.inside(*argv), timeout=timeout, check=check)

    async def close(self) -> None:
        for process in self.processes:
            await process.stop()
        self.holder.kill()
        await self.holder.wait()


class Lab:
    """The namespace that this process has entered; `folder` is for logs, keys and etcd's data."""

    def __init__(self, folder: Path, binaries: Path, clock: Clock) -> None:
        self.folder = folder
        self.token = secrets.token_hex(16)
        self._binaries = binaries
        self._clock = clock
        self._servers: list[Process] = []
        self._spaces: list[Space] = []

    @property
    def access(self) -> ClusterAccess:
        return ClusterAccess(server=f"https://{ADDRESS}:6443", token=self.token, insecure=True)

    async def prepare(self) -> None:
        """Make the bridge that the namespaces share, and the keys of the API server."""
        await command.run(["ip", "link", "set", "lo", "up"])
        await command.run(["ip", "link", "add", _BRIDGE, "type", "bridge"])
        await command.run(["ip", "addr", "add", f"{ADDRESS}/24", "dev", _BRIDGE])
        await command.run(["ip", "link", "set", _BRIDGE, "up"])
        key = self.folder / "sa.key"
        await command.run(["openssl", "genrsa", "-traditional", "-out", str(key), "2048"])
        (self.folder / "tokens.csv").write_text(f"{self.token},admin,admin,system:masters\n")

    async def start_etcd(self, data: Path) -> str:
        """Start etcd and return its client URL. `data` may come from an earlier etcd."""
        flags = ["--data-dir", str(data), "--unsafe-no-fsync", "--max-txn-ops=2000", "--max-request-bytes=33554432"]
        flags += ["--quota-backend-bytes=8589934592", "--log-level=warn"]
        self._servers.append(await self.spawn("etcd", [str(self._binaries / "etcd"), *flags]))
        url = "http://127.0.0.1:2379"
        await self._answers(f"{url}/health")
        return url

    async def start_api_server(self) -> Process:
        """Start the API server and wait until it is ready."""
        key = str(self.folder / "sa.key")
        flags = [
            "--etcd-servers=http://127.0.0.1:2379",
            f"--advertise-address={ADDRESS}",
            "--authorization-mode=RBAC",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            f"--cert-dir={self.folder / 'pki'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--max-requests-inflight=0",
            "--max-mutating-requests-inflight=0",
            "--enable-priority-and-fairness=false",
            "--profiling=false",
        ]
        argv = [str(self._binaries / "kube-apiserver"), *flags]
        made = await self.spawn("kube-apiserver", argv)
        self._servers.append(made)
        await self._answers("https://127.0.0.1:6443/readyz")
        return made

    async def stop(self, server: Process) -> None:
        """Stop one server."""
        self._servers.remove(server)
        await server.stop()

    async def stop_servers(self) -> None:
        """Stop the API server, then etcd."""
        while self._servers:
            await self._servers.pop().stop()

    async def space(self, name: str, number: int) -> Space:
        """Make a namespace with the address 10.89.250.(10 + number) on its link eth0 and a default route."""
        argv = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "sh", "-c", "echo; exec sleep infinity"]
        holder = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
        assert holder.stdout is not None
        await holder.stdout.readline()
        made = Space(name, f"10.89.250.{10 + number}", holder)
        self._spaces.append(made)
        await made.run("ip", "link", "set", "lo", "up")
        peer = ["peer", "name", f"lab-{number}", "netns", str(os.getpid())]
        await made.run("ip", "link", "add", "eth0", "type", "veth", *peer)
        await made.run("ip", "addr", "add", f"{made.address}/24", "dev", "eth0")
        await made.run("ip", "link", "set", "eth0", "up")
        await made.run("ip", "route", "add", "default", "via", ADDRESS)
        await command.run(["ip", "link", "set", f"lab-{number}", "master", _BRIDGE, "up"])
        return made

    async def drop(self, space: Space) -> None:
        self._spaces.remove(space)
        await space.close()

    async def spawn(self, name: str, argv: Sequence[str], *, pipes: bool = False, cwd: str | None = None) -> Process:
        """Start a child. With `pipes` the caller has its stdin and stdout."""
        log = self.folder / f"{name}.log"
        pipe = asyncio.subprocess.PIPE if pipes else None
        with log.open("ab") as file:
            handle = await asyncio.create_subprocess_exec(
                *("setpriv", "--pdeathsig", "KILL", *argv),
                stdin=pipe or asyncio.subprocess.DEVNULL,
                stdout=pipe or file,
                stderr=file,
                cwd=cwd,
                start_new_session=True,
            )
        return Process(name, handle, log)

    async def close(self) -> None:
        for space in reversed(self._spaces):
            await space.close()
        self._spaces.clear()
        await self.stop_servers()
        await asyncio.to_thread(shutil.rmtree, self.folder, True)

    async def _answers(self, url: str) -> None:
        deadline = self._clock.monotonic() + _READY
        async with aiohttp.ClientSession() as session:
            while self._clock.monotonic() < deadline:
                for process in self._servers:
                    if not process.running:
                        raise Permanent(process.tail(), obj=process.name, step="start")
                try:
                    async with session.get(url, ssl=False) as response:
                        if response.status == 200:
                            return
                except (aiohttp.ClientError, OSError):
                    pass
                await self._clock.sleep(0.1)
        raise Temporary(self._servers[-1].tail(), obj=url, step=f"wait {_READY:g} s for an answer")
