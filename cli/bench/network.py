"""`bench network`: how long CNI calls take, with our plugin and with the CNI project's bridge plugin."""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cli.bench.report import Row, percentile
from cli.project import PROJECT
from nodelib.command import run_sync
from nodelib.errors import NotFound

PEER_PLUGINS = Path("/usr/lib/cni")  # Debian's containernetworking-plugins


@dataclass(frozen=True, slots=True)
class Plan:
    """How many calls: `alone` one after the other, `together` at once."""

    alone: int = 200
    together: int = 200


@dataclass(frozen=True, slots=True)
class CallTimes:
    """Seconds of each call, as the runtime that executes the plugin sees them. `refused`: how many calls failed."""

    add: tuple[float, ...]
    delete: tuple[float, ...]
    together: float
    refused: int

    @classmethod
    def from_json(cls, raw: dict[str, object]) -> CallTimes:
        add, delete = (tuple(map(float, raw[name])) for name in ("add", "delete"))  # type: ignore[call-overload]
        return cls(add, delete, float(str(raw["together"])), int(str(raw["refused"])))


def measure(plan: Plan, maker: str) -> CallTimes:
    """Measure `maker` ("nodewright" or "upstream") in a temporary network namespace. Raises NotFound, CommandError."""
    if maker == "upstream" and not (PEER_PLUGINS / "bridge").exists():
        raise NotFound(
            "no such CNI plugin",
            obj=str(PEER_PLUGINS / "bridge"),
            step="bench network --peer upstream",
            action="Run `apt-get install containernetworking-plugins`.",
        )
    with tempfile.TemporaryDirectory(prefix="nodewright-bench-") as folder:
        worker = [sys.executable, "-m", "cli.bench.network_worker", folder, maker, str(plan.alone), str(plan.together)]
        done = run_sync(["unshare", "--net", *worker], timeout=1800, cwd=str(PROJECT))
    return CallTimes.from_json(json.loads(done.stdout))


def rows(plan: Plan, ours: CallTimes, peer: CallTimes | None) -> list[Row]:
    """The table, in milliseconds a call."""

    def row(name: str, values: str, share: float) -> Row:
        theirs = percentile(list(getattr(peer, values)), share) * 1000 if peer else None
        return Row(name, percentile(list(getattr(ours, values)), share) * 1000, theirs, "ms")

    at_once = f"{plan.together} ADDs at once, until the last"
    table = [
        row("CNI ADD, one at a time, p50", "add", 0.5),
        row("CNI ADD, one at a time, p99", "add", 0.99),
        row("CNI DEL, one at a time, p50", "delete", 0.5),
        row("CNI DEL, one at a time, p99", "delete", 0.99),
        Row(at_once, ours.together, peer.together if peer else None, "s"),
    ]
    refused = Row("of them refused", float(ours.refused), float(peer.refused) if peer else None, "calls")
    return [*table, refused] if ours.refused or (peer and peer.refused) else table
