"""`nodewright doctor`: checks this machine and a cluster's nodes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from cli.display.columns import paragraph
from cli.display.terminal import new_console
from cli.project import PROJECT
from cli.why.wording import Wording
from controlplane.cluster.advice import ours
from controlplane.cluster.edge import state
from controlplane.cluster.model import Cluster
from controlplane.doctor.plan.preflight import Finding
from controlplane.doctor.work import examine, examine_nodes
from nodelib.text import one_line

if TYPE_CHECKING:
    from cli.why.model import Explained

_STYLE = {"ok": "green", "warning": "yellow", "error": "bold red", "fatal": "bold red"}
_INDENT = 9
_MOST_OBJECTS = 10
_LONGEST = 300  # bytes of what one finding says
_LONGEST_FIX = 4000  # bytes: a command that is cut off is of no use


def run(name: str, *, as_json: bool, binaries: Path | None) -> None:
    """Show all findings about this machine and the cluster `name`; exit status 1 if one is fatal or an error."""
    findings = asyncio.run(_findings(name, binaries))
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        show(findings)
    if any(finding.level in ("error", "fatal") for finding in findings):
        raise SystemExit(1)


async def _findings(name: str, binaries: Path | None) -> tuple[Finding, ...]:
    found = (*await examine(str(PROJECT), binaries), *await examine_nodes(name))
    cluster = state.load_readable(name)
    return (*found, *await _troubles(cluster)) if cluster is not None else found


async def _troubles(cluster: Cluster) -> tuple[Finding, ...]:
    """What `why` finds is a warning, since pods may be broken in a healthy cluster; Nodes are examined already."""
    from cli.commands.why import judged
    from cli.why import judge
    from cli.why.sources import ask

    answers = await ask(cluster)
    if not answers.agents and not answers.api_answers:
        return ()  # that nobody answers is a finding already
    every = judged(cluster, answers)
    return troubles([one for one in judge.troubles(every, "") if one.kind != "node"], cluster.name)


def troubles(ill: Sequence[Explained], name: str) -> tuple[Finding, ...]:
    """One finding for each of the first objects that are not well, and how many more there are."""
    if not ill:
        return (Finding(f"{name}: pods", "ok", "all are running and ready, or have completed"),)
    wording, found = Wording(name), []
    for one in ill[:_MOST_OBJECTS]:
        title = f"{one.found.namespace}/{one.found.name}"
        asked = title if one.kind == "pod" else f"{one.found.namespace}/{one.kind}/{one.found.name}"
        advised = next((wording.typed(wait.action) for wait in one.found.waits if wait.action), "")
        fix = advised or ours(name, "why", asked)
        said = one_line(one.found.summary, _LONGEST)
        found.append(Finding(f"{one.kind} {title}", "warning", said, one_line(fix, _LONGEST_FIX)))
    if len(ill) > _MOST_OBJECTS:
        text = f"{len(ill) - _MOST_OBJECTS} more have a problem"
        found.append(Finding(f"{name}: pods", "warning", text, f"{ours(name, 'why')} lists them"))
    return tuple(found)


def show(findings: Sequence[Finding], console: Console | None = None) -> None:
    """Print a paragraph for each finding, with its fix on a line of its own; a path or a command is never cut."""
    console = console or new_console()
    for finding in findings:
        paragraph(console, finding.level.ljust(_INDENT), f"{finding.check}: {finding.found}", _STYLE[finding.level])
        if finding.level != "ok" and finding.fix:
            paragraph(console, " " * _INDENT, f"fix: {finding.fix}", style="bold")
