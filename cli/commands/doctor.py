"""`nodewright doctor`: checks this machine and a cluster's nodes."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from pathlib import Path

from rich.table import Table
from rich.text import Text

from cli.display.terminal import new_console
from cli.project import PROJECT
from controlplane.doctor.plan.preflight import Finding, fatal
from controlplane.doctor.work import examine, examine_nodes

_STYLE = {"ok": "green", "warning": "yellow", "fatal": "bold red"}


def run(name: str, *, as_json: bool, binaries: Path | None) -> None:
    """Show all findings about this machine and the nodes of the cluster `name`; exit status 1 if one is fatal."""
    findings = asyncio.run(_findings(name, binaries))
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        show(findings)
    if fatal(findings):
        raise SystemExit(1)


async def _findings(name: str, binaries: Path | None) -> tuple[Finding, ...]:
    return (*await examine(str(PROJECT), binaries), *await examine_nodes(name))


def show(findings: tuple[Finding, ...]) -> None:
    """Print a table, with each fix on a line below its finding."""
    table = Table(box=None, padding=(0, 2), show_header=False)
    for finding in findings:
        table.add_row(Text(finding.level, _STYLE[finding.level]), finding.check, finding.found)
        if finding.level != "ok" and finding.fix:
            table.add_row("", "", Text(f"fix: {finding.fix}", "bold"))
    new_console().print(table)
