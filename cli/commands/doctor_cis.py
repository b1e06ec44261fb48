"""`nodewright doctor --cis`: the CIS Kubernetes Benchmark's controls for worker nodes, 4.1 to 4.3."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.display.terminal import new_console
from cli.errors import need_root
from controlplane.doctor.plan.cis import ControlFinding
from controlplane.doctor.work import examine_controls
from nodelib.text import one_line

_STYLE = {"pass": "green", "unknown": "yellow", "fail": "bold red"}
_WIDE = 200
_LONGEST = 4000  # bytes of what is said about one control


def run(name: str, *, as_json: bool, kubeconfig: str = "") -> None:
    """Judge the nodes of the cluster `name` and this machine; exit status 1 when a control fails."""
    need_root("doctor --cis")
    findings = asyncio.run(examine_controls(name, kubeconfig))
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        show(findings, new_console(width=None if sys.stdout.isatty() else _WIDE))
    if any(finding.status == "fail" for finding in findings):
        raise SystemExit(1)


def show(findings: Sequence[ControlFinding], console: Console) -> None:
    """A table for each node: the controls with what was found, and below each what to do."""
    for node, rows in groupby(findings, key=lambda finding: finding.node):
        table, counted, source = Table(box=None, padding=(0, 2), show_header=False), dict.fromkeys(_STYLE, 0), ""
        for column in ("control", "status", "finding"):
            table.add_column(column, overflow="fold")
        for one in rows:
            counted[one.status] += 1
            source = one_line(one.source, _LONGEST)
            table.add_row(one.control, Text(one.status, _STYLE[one.status]), one.title)
            table.add_row("", "", Text(one_line(one.finding, _LONGEST), "dim" if one.status == "pass" else ""))
            if one.fix:
                table.add_row("", "", Text(one_line(f"fix: {one.fix}", _LONGEST), "bold"))
        console.print(f"\n{one_line(node, _LONGEST)}: CIS Kubernetes Benchmark, 4 Worker Nodes")
        if source:
            console.print(f"configuration of the kubelet: {source}")
        console.print(table)
        console.print(", ".join(f"{number} {status}" for status, number in counted.items()))
