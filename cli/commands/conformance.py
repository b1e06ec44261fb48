"""`nodewright conformance`: runs upstream's e2e or e2e_node suite and prints a table by feature."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.clusters import find
from cli.display.steps import Display
from cli.display.terminal import new_console
from cli.errors import need_root
from cli.project import PROJECT
from controlplane.cluster.advice import line as our_line
from controlplane.suites.plan import cyclonus, network_policy_api
from controlplane.suites.plan.conformance import alone, table
from controlplane.suites.plan.node_suite import Setup
from controlplane.suites.work.conformance import Order
from controlplane.suites.work.conformance import run as run_suite
from controlplane.suites.work.elsewhere import run_elsewhere
from controlplane.suites.work.node_suite import NodeOrder, list_tests
from controlplane.suites.work.node_suite import run as run_node_suite
from controlplane.suites.work.policy_suites import PolicyOrder, PolicySuite
from controlplane.suites.work.policy_suites import run as run_policy_suite
from controlplane.suites.work.results import Report
from nodelib.clock import SystemClock
from nodelib.errors import WrongUsage

_T = TypeVar("_T")


def run(
    name: str,
    tier: str,
    *,
    focus: str,
    skip: str,
    procs: int,
    serial: bool,
    dry_run: bool,
    results: Path | None,
    binaries: Path | None,
    storage_driver: Path | None,
    kubeconfig: Path | None,
    plain: bool,
) -> None:
    """Run the suite and show its table; exit status 1 when a test failed or none ran."""
    order = Order(tier, focus, skip, procs, serial, dry_run, results, binaries, storage_driver)
    if kubeconfig is None:
        need_root("conformance")
        cluster = find(name)
    with Display(plain=plain or None) as display:
        work = run_suite(cluster, order, display) if kubeconfig is None else run_elsewhere(kubeconfig, order, display)
        report = asyncio.run(work)
    if dry_run:
        _show_names(report.listed)
    show(report, name, new_console(), partial(alone, cluster=name, kubeconfig=str(kubeconfig or "")))
    if report.status != 0 or not report.results or any(result.outcome == "failed" for result in report.results):
        raise SystemExit(1)


def check_elsewhere(others: Mapping[str, bool]) -> None:
    """Raises Invalid for options that do not go with --kubeconfig, by their names."""
    given = [name for name, value in others.items() if value]
    if given:
        raise WrongUsage(
            f"{', '.join(given)} and --kubeconfig cannot be combined",
            obj="conformance",
            step="read the options",
            action="--kubeconfig runs the e2e suite, against a cluster that `up` did not make.",
        )


def setup_of(*, standalone: bool, cri_proxy: bool) -> Setup:
    """What runs beside the kubelet. Raises Invalid for both at once, which the suite does not support."""
    if standalone and cri_proxy:
        raise WrongUsage(
            "--standalone and --cri-proxy cannot be combined",
            step="read the options",
            action="Run them separately.",
        )
    if standalone:
        return Setup.STANDALONE
    return Setup.CRI_PROXY if cri_proxy else Setup.WITH_API


def node_order(
    name: str,
    agent: str,
    labels: str,
    focus: str,
    skip: str,
    procs: int,
    results: Path | None,
    binaries: Path | None,
    setup: Setup,
) -> NodeOrder:
    """The order that the command line gives, with the paths of this project and its interpreter."""
    return NodeOrder(
        name=name,
        agent=agent,
        labels=labels,
        focus=focus,
        skip=skip,
        procs=procs,
        results=results,
        binaries_dir=binaries,
        setup=setup,
        project=str(PROJECT),
        python=sys.executable,
    )


def run_node(order: NodeOrder, *, plain: bool) -> None:
    """Run e2e_node.test on a node of its own and show its table; exit status 1 when a test failed or none ran."""
    need_root("conformance")
    with Display(plain=plain or None) as display:
        report = asyncio.run(until_asked_to_stop(run_node_suite(order, display, SystemClock())))
    show(report, order.name, new_console())
    if report.status != 0 or not report.results or any(result.outcome == "failed" for result in report.results):
        raise SystemExit(1)


def run_policies(
    name: str, suite: str, *, focus: str, skip: str, results: Path | None, binaries: Path | None, plain: bool
) -> None:
    """Run a suite of policies and show its table; exit status 1 when a case failed."""
    need_root("conformance")
    cluster = find(name)
    chosen: PolicySuite = cyclonus if suite == cyclonus.SUITE else network_policy_api
    with Display(plain=plain or None) as display:
        report = asyncio.run(run_policy_suite(cluster, chosen, PolicyOrder(focus, skip, results, binaries), display))
    show(report, name, new_console(), lambda case: our_line(name, "conformance", *chosen.again(case)))
    if report.status != 0 or any(result.outcome == "failed" for result in report.results):
        raise SystemExit(1)


def list_node(order: NodeOrder, *, plain: bool) -> None:
    """List the tests that run_node() would run; exit status 1 if there are none."""
    with Display(plain=plain or None) as display:
        listed = asyncio.run(list_tests(order, display))
    _show_names(listed)


def _show_names(listed: Sequence[str]) -> NoReturn:
    print("\n".join(sorted(listed)))
    print(f"{len(listed)} tests")
    raise SystemExit(0 if listed else 1)


async def until_asked_to_stop(work: Coroutine[Any, Any, _T]) -> _T:
    """SIGTERM and Ctrl-C cancel the work, which cleans up; another signal does not interrupt the cleanup."""
    task, loop = asyncio.ensure_future(work), asyncio.get_running_loop()
    asked: list[int] = []

    def stop(number: int, _: object) -> None:
        if not asked:
            asked.append(number)
            loop.call_soon_threadsafe(task.cancel)

    # Not loop.add_signal_handler(): processes that pyroute2 forks would inherit its wake-up pipe and end on SIGTERM.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    try:
        return await task
    except asyncio.CancelledError:
        raise SystemExit(128 + asked[0] if asked else 1) from None


def show(report: Report, cluster: str, console: Console, one: Callable[[str], str] | None = None) -> None:
    """Print a row for each feature, then each failure with its reason and the command that runs it alone (`one`)."""
    rows = table(report.results)
    shown = Table(box=None, padding=(0, 2), header_style="bold")
    shown.add_column("FEATURE")
    for column in ("PASSED", "FAILED", "SECONDS"):
        shown.add_column(column, justify="right")
    for row in rows:
        failed = Text(str(row.failed), "bold red") if row.failed else Text("")
        shown.add_row(row.feature, str(row.passed), failed, f"{row.seconds:.1f}")
    console.print(shown)
    for row in rows:
        for failure in row.failures:
            console.print(Text(f"\nFAILED {failure.name}", "bold red"))
            console.print(f"  {failure.reason}")
            line = one(failure.name) if one is not None else alone(failure.name, cluster)
            console.print(f"  run it alone: {line}", soft_wrap=True)
    passed, failed_count = sum(row.passed for row in rows), sum(row.failed for row in rows)
    console.print(f"\n{passed} passed, {failed_count} failed in {report.seconds:.0f} s. Reports: {report.directory}")
