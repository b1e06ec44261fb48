"""`nodewright drops`: the packets that network policies refused, from the policy daemons of all nodes."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from dataclasses import dataclass, field

from cli.clusters import find, refuse_if_stopped
from cli.display.columns import aligned
from cli.errors import need_root
from cli.policies import sources
from cli.policies.drops_text import HEADS, Wanted, allow_dns, reasons, row
from cli.policies.follow import follow_node, problem_of
from cli.why.texts import clock
from cli.why.wording import Wording
from controlplane.cluster.advice import ours
from controlplane.cluster.edge import state
from controlplane.cluster.model import DEFAULT_NAME
from nodelib.errors import NodewrightError, NotFound, Temporary
from nodelib.tasks import side_by_side
from nodelib.text import one_line
from policy.drops.plan.document import ReportedDrop, as_json, reported_drops

_LINE = 4000  # bytes of a printed line
_AGAIN = 5.0  # seconds in which a flow that goes on is not printed again
_REASONS = 20


def run(name: str, pod: str, *, namespace: str, follow: bool, as_json: bool) -> None:
    """Print them; exit status 1 when a node reports none because it cannot. Raises NotFound for an unknown cluster."""
    need_root("drops")
    before, _, last = pod.rpartition("/")
    wanted = Wanted(before or namespace, last)
    cluster = state.load(name)
    paths = sources.sockets(cluster)
    if cluster is None and not os.path.exists(paths["this node"]):
        raise _no_daemon(name)
    if cluster is not None and not cluster.options.enforces_policies:
        raise Temporary(sources.NOT_ENFORCED, obj=cluster.name, action=_anew(cluster.name))
    if cluster is not None:
        refuse_if_stopped(cluster)
    if follow:
        asyncio.run(_follow(paths, Printer(wanted, as_json)))
    elif not asyncio.run(show(paths, wanted, as_json, Wording(cluster.name if cluster else ""))):
        raise SystemExit(1)


def _anew(name: str) -> str:
    """A living cluster cannot get it."""
    return f"Make the cluster anew: {ours(name, 'down')}, then {ours(name, 'up')}."


def _no_daemon(name: str) -> NodewrightError:
    if state.clusters() or name != DEFAULT_NAME:
        find(name)  # raises NotFound, which names the clusters that exist
    return NotFound(
        "no policy daemon runs on this machine, and there is no cluster of `up`",
        obj=name,
        step="ask for refused packets",
        action="Network policies are enforced by clusters of `up`, and where `python -m policy` runs.",
    )


async def show(paths: dict[str, str], wanted: Wanted, as_json_wanted: bool, wording: Wording) -> bool:
    """Returns whether every node reports."""
    replies = await asyncio.gather(*(sources.every_drop(path) for path in paths.values()))
    silent: dict[str, str] = {}
    found: list[tuple[str, ReportedDrop]] = []
    for node, (answer, why) in zip(paths, replies, strict=True):
        if problem := problem_of(answer, why):
            silent[node] = problem
        if answer is not None:
            found += [(node, one) for one in reported_drops(answer) if wanted.fits(one)]
    found.sort(key=lambda one: one[1].last)
    if as_json_wanted:
        print(json.dumps({"drops": [{"node": node} | as_json(one) for node, one in found], "silent": silent}, indent=1))
    else:
        _print(found, silent, wanted, wording)
    return not silent


def _print(found: list[tuple[str, ReportedDrop]], silent: dict[str, str], wanted: Wanted, wording: Wording) -> None:
    for node, why in silent.items():
        print(one_line(f"{node}: {why}", _LINE), file=sys.stderr)
    if not found:
        none = wording.typed(f"No refused packets are known{wanted.words}.")
        print(one_line(f"{none} The nodes remember the latest since their policy daemons started.", _LINE))
        return
    for line in aligned([HEADS, *(row(one, node, _time) for node, one in found)]):
        print(one_line(line, _LINE))
    every = reasons(one for _, one in found)
    if every:
        print("")
    for line in every[-_REASONS:]:
        print(one_line(line, _LINE))
    advice = dict.fromkeys(allow_dns(one) for _, one in found)
    for line in [one for one in advice if one][-_REASONS:]:
        print(one_line(wording.typed(line), _LINE))


@dataclass(slots=True)
class Printer:
    """Prints drops as they come; one that goes on at most once in _AGAIN seconds."""

    wanted: Wanted
    as_json: bool
    printed: dict[object, float] = field(default_factory=dict)
    headed: bool = False

    def take(self, node: str, found: tuple[ReportedDrop, ...]) -> None:
        now = time.monotonic()
        self.printed = {key: at for key, at in self.printed.items() if now - at < _AGAIN}
        for one in found:
            key = (node, one.direction, one.client, one.server, one.protocol, one.port)
            if not self.wanted.fits(one) or key in self.printed:
                continue
            self.printed[key] = now
            if self.as_json:
                print(json.dumps({"node": node} | as_json(one)), flush=True)
            else:
                self._line(one, node)

    def problem(self, node: str, text: str) -> None:
        print(one_line(f"{node}: {text or 'reports refused packets'}", _LINE), file=sys.stderr, flush=True)

    def _line(self, one: ReportedDrop, node: str) -> None:
        if not self.headed:
            print("  ".join(HEADS), flush=True)
            self.headed = True
        print(one_line("  ".join(row(one, node, _time)), _LINE), flush=True)


async def _follow(paths: dict[str, str], printer: Printer) -> None:
    """Until interrupted."""
    await side_by_side(**{node: follow_node(node, path, printer) for node, path in paths.items()})


def _time(at: float) -> str:
    return clock(at) if at > 0 else "-"
