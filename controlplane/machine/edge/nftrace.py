"""Has the kernel of a node report the path of a connection's packets (nft(8), meta nftrace)."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

from controlplane.machine.edge.namespaces import entered
from nodelib.errors import Temporary

TABLE_PREFIX = "nodewright-trace-"
_ANSWERS_WITHIN = 10.0  # seconds
_LONGEST_LINE = 1 << 20  # bytes; a longer one ends the watch
_FIRST, _LAST = ("prerouting", "output"), ("input", "postrouting")


@dataclass(frozen=True, slots=True)
class Match:
    """The first packets that are reported; `source` "" means any sender."""

    source: str
    destination: str
    port: int
    protocol: str


class Watch:
    """Two nft processes in the network namespace `net` while the context lasts; they report what any match selects."""

    def __init__(self, net: str, matches: Sequence[Match]) -> None:
        self._net = net
        self._rules = [f"{_selection(one)} meta nftrace set 1;" for one in matches]
        self._table = f"{TABLE_PREFIX}{os.getpid()}"
        self._processes: list[asyncio.subprocess.Process] = []

    async def __aenter__(self) -> Watch:
        monitor = await self._start("nft", "monitor", "trace")
        self._processes.append(monitor)
        owner = await self._start("nft", "-i")
        self._processes.append(owner)
        assert owner.stdin is not None
        # One line, as each line of `nft -i` is a transaction. Priority before raw, so that every chain is reported; the
        # last chains are there to be reported: a packet that comes to none of them was lost on the way.
        chains = " ".join(
            [f"chain {hook} {{ type filter hook {hook} priority -400; {' '.join(self._rules)} }};" for hook in _FIRST]
            + [f"chain {hook} {{ type filter hook {hook} priority 400; }};" for hook in _LAST]
        )
        owner.stdin.write(f"table inet {self._table} {{ flags owner; {chains} }}\n".encode())
        await owner.stdin.drain()
        await self._stands(owner)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in reversed(self._processes):
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def line(self) -> str | None:
        """The next line of the kernel's report; None when nft has ended."""
        stdout = self._processes[0].stdout
        assert stdout is not None
        try:
            raw = await stdout.readline()
        except ValueError:
            return None
        return raw.decode(errors="replace").strip() if raw else None

    async def _start(self, *argv: str) -> asyncio.subprocess.Process:
        # The kernel kills the child when we die, and removes the table with the child's socket.
        return await asyncio.create_subprocess_exec(
            *("setpriv", "--pdeathsig", "KILL", *entered(self._net, argv)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            limit=_LONGEST_LINE,
        )

    async def _stands(self, owner: asyncio.subprocess.Process) -> None:
        """Wait until the table is in the kernel. Raises Temporary with nft's output."""
        for _ in range(100):
            probe = await asyncio.create_subprocess_exec(
                *entered(self._net, ["nft", "list", "table", "inet", self._table]),
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
            )
            async with asyncio.timeout(_ANSWERS_WITHIN):
                if await probe.wait() == 0:
                    return
            await asyncio.sleep(0.05)
        assert owner.stdout is not None
        async with asyncio.timeout(1):
            said = await owner.stdout.read(2000)
        raise Temporary(
            said.decode(errors="replace"),
            obj=f"table {self._table}",
            step="ask the kernel for a trace",
            action="It needs nftables 1.0.1 and Linux 5.12 (tables with an owner).",
        )


def _selection(one: Match) -> str:
    ip = "ip6" if ":" in one.destination else "ip"
    sender = f"{ip} saddr {one.source} " if one.source else ""
    # Connection tracking has not seen the packet yet, so its flags say whether it is new.
    first = " tcp flags & (fin | syn | rst | ack) == syn" if one.protocol == "tcp" else ""
    return f"{sender}{ip} daddr {one.destination} {one.protocol} dport {one.port}{first}"
