"""`nodewright bench network`: CNI calls, ours and, with --peer, the CNI project's bridge plugin, in turn."""

from __future__ import annotations

from cli.bench import network
from cli.commands.bench.publish import show, write_section
from cli.display.steps import Display
from cli.errors import need_root


def run(*, peer: bool, plan: network.Plan, write: bool, plain: bool) -> None:
    """Measure, print the table, and write it into docs/benchmarks.md if `write`."""
    need_root("bench")
    with Display(plain=plain or None) as display:
        with display.step("CNI calls: nodewright"):
            ours = network.measure(plan, "nodewright")
        theirs = None
        if peer:
            with display.step("CNI calls: bridge and host-local"):
                theirs = network.measure(plan, "upstream")
    table = network.rows(plan, ours, theirs)
    show(table)
    if write:
        write_section(table, "CNI plugin", peer="Debian's containernetworking-plugins (bridge, host-local)")
