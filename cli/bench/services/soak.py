"""Compares a long-running proxy with a fresh one, again and again, while Services change at random.

The rules of the proxy that lived through all changes (incremental writes) must equal those of one that has just been
started in a namespace of its own, on the same objects: rules, chains, set elements; counters and handles may differ.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cli.bench.services.churn import Churn
from cli.bench.services.subject import Subject, cost
from controlplane.cluster.edge.lab import Lab, Space
from nodelib.clock import Clock

_TABLES = ("mangle", "filter", "nat")
_ON_DEMAND = ("pick-", "local-", "sticky-", "external-", "remember-")
_SETTLED = 60.0  # seconds
_VOLATILE = {"handle", "counter", "packets", "bytes", "expires", "index"}


@dataclass(slots=True)
class Comparison:
    """One comparison: what differed (ten lines at most), and the resources of the proxy. Memory in MiB."""

    mode: str
    changes: int
    difference: list[str]
    rss: float
    fresh: float  # resident memory of the proxy that has just been started on the same objects
    files: int
    lines: int
    listening: int  # sockets that it listens on: health check node ports come and go with the Services


@dataclass(slots=True)
class Soak:
    """The whole run. `make` builds a subject of a mode; `number` counts namespaces."""

    lab: Lab
    clock: Clock
    pods: Space
    make: Callable[[str], Subject]
    comparisons: list[Comparison] = field(default_factory=list)
    number: int = 20

    async def run(self, modes: tuple[str, ...], churn: Churn, seconds: float, say: Callable[[str], None]) -> None:
        """Rounds of 20 s of changes, each followed by a comparison, for `seconds`."""
        old = {mode: await self._started(mode) for mode in modes}
        try:
            deadline = self.clock.monotonic() + seconds
            while self.clock.monotonic() < deadline:
                round_end = self.clock.monotonic() + 20
                while self.clock.monotonic() < round_end:
                    await asyncio.gather(*(churn.step() for _ in range(4)))
                    await self.clock.sleep(0.1)
                for mode, subject in old.items():
                    one = await self._compare(mode, subject, churn.done)
                    self.comparisons.append(one)
                    memory = f"RSS {one.rss:.0f} MiB ({one.fresh:.0f} for a fresh one)"
                    say(f"{mode}, {churn.done} changes: {len(one.difference)} differences, {memory}")
        finally:
            for subject in old.values():
                await subject.close()

    async def _compare(self, mode: str, old: Subject, changes: int) -> Comparison:
        fresh = await self._started(mode)
        try:
            deadline = self.clock.monotonic() + _SETTLED
            while True:
                wanted, stands = await asyncio.gather(state(fresh.space, mode), state(old.space, mode))
                difference = differing(wanted, stands, mode)
                if not difference or self.clock.monotonic() > deadline:
                    break
                await self.clock.sleep(1)
            fresh_rss = cost(fresh.process.pid).rss
        finally:
            await fresh.close()
        pid = old.process.pid
        files = len(os.listdir(f"/proc/{pid}/fd"))
        listening = len((await old.space.run("ss", "-Hltn")).text.splitlines())
        return Comparison(mode, changes, difference[:10], cost(pid).rss, fresh_rss, files, len(stands), listening)

    async def _started(self, mode: str) -> Subject:
        self.number = 20 + (self.number - 19) % 200
        subject = self.make(mode)
        await subject.open(self.number, self.pods)
        await subject.start()
        await subject.synced(120)
        return subject


async def state(space: Space, mode: str) -> set[str]:
    """Everything that the proxy has in the kernel, as lines."""
    if mode == "iptables":
        found: set[str] = set()
        for tool in ("iptables-save", "ip6tables-save"):
            for table in _TABLES:
                text = (await space.run(tool, "-t", table, timeout=120)).text
                lines = [line.split(" ")[0] if line[:1] == ":" else line for line in text.splitlines()]
                found.update(f"{tool} {table} {line}" for line in lines if line[:1] in (":", "-"))
        return found
    done = await space.run("nft", "-j", "list", "ruleset", timeout=120)
    return {line for item in json.loads(done.stdout)["nftables"] for line in _lines(item)}


def differing(wanted: set[str], stands: set[str], mode: str) -> list[str]:
    """Lines that only one of them has. Unused chains that are kept for later are no difference."""
    lost = [f"missing: {line}" for line in sorted(wanted - stands)]
    more = [f"too much: {line}" for line in sorted(stands - wanted) if mode == "iptables" or not _kept_for_later(line)]
    return lost + more


def _lines(item: dict[str, Any]) -> list[str]:
    kind, obj = next(iter(item.items()))
    if kind == "metainfo":
        return []
    where = f"{obj.get('family')} {obj.get('table', '')} {kind} {obj.get('chain', obj.get('name', ''))}"
    if kind in ("set", "map"):
        if "dynamic" in (obj.get("flags") or []):
            return [where]
        return [where, *(f"{where}: {json.dumps(_steady(one), sort_keys=True)}" for one in obj.get("elem") or [])]
    return [f"{where}: {json.dumps(_steady(obj), sort_keys=True)}"]


def _steady(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _steady(one) for key, one in value.items() if key not in _VOLATILE}
    return [_steady(one) for one in value] if isinstance(value, list) else value


def _kept_for_later(line: str) -> bool:
    words = line.split(" ")
    return len(words) > 3 and words[2] in ("chain", "rule") and words[3].startswith(_ON_DEMAND)


def report(comparisons: list[Comparison]) -> list[str]:
    """A line for each mode, and the differences if there were any."""
    lines = []
    for mode in dict.fromkeys(one.mode for one in comparisons):
        own = [one for one in comparisons if one.mode == mode]
        wrong = [one for one in own if one.difference]
        rss, files = [one.rss for one in own], [one.files - one.listening for one in own]
        lines.append(
            f"{mode}: {len(own)} comparisons, {len(wrong)} of them with a difference; {own[-1].changes} changes,"
            f" {own[-1].lines} lines in the kernel at the end; RSS {rss[0]:.0f} MiB at first, {rss[-1]:.0f} at last,"
            f" {max(rss):.0f} at most, of a fresh proxy {own[0].fresh:.0f} and {own[-1].fresh:.0f};"
            f" open files that do not listen: {min(files)} to {max(files)}"
        )
        for one in wrong:
            lines += [f"  after {one.changes} changes: {line}" for line in one.difference]
    return lines
