"""Runs a suite of network policies (cyclonus, network-policy-api) against a cluster whose nodes enforce policies.

Each suite is one program; its command line and its output are read by a module of `suites/plan`.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from controlplane.cluster.advice import ours
from controlplane.cluster.edge.roots import cache_root
from controlplane.cluster.model import Cluster
from controlplane.cluster.plan.components import Tools
from controlplane.cluster.work.node_images import import_images
from controlplane.machine.edge.locks import directory_lock
from controlplane.machine.edge.protocols import has_sctp
from controlplane.machine.edge.streamed import run_lines
from controlplane.progress import Progress
from controlplane.suites.plan.conformance import Result
from controlplane.suites.work import results
from controlplane.suites.work.results import Report
from nodelib.errors import Invalid

_LAST_LINES = 4  # that are shown when no case ended


@dataclass(frozen=True, slots=True)
class PolicyOrder:
    """What to run, and where to write the results."""

    focus: str = ""
    skip: str = ""
    results: Path | None = None
    binaries_dir: Path | None = None


class PolicySuite(Protocol):
    """controlplane/suites/plan/cyclonus.py, controlplane/suites/plan/network_policy_api.py."""

    @property
    def SUITE(self) -> str: ...

    @property
    def IMAGE(self) -> str: ...

    def arguments(self, suite: str, kubeconfig: str, /, *, focus: str, skip: str, sctp: bool) -> list[str]: ...

    def is_read(self, line: str, /) -> bool: ...

    def ends_case(self, line: str, /) -> bool: ...

    def read_output(self, lines: Iterable[str], /) -> tuple[Result, ...]: ...

    def again(self, name: str, /) -> list[str]: ...


async def run(cluster: Cluster, suite: PolicySuite, order: PolicyOrder, progress: Progress) -> Report:
    """Run the cases that `order` selects.

    Raises Invalid for a cluster without policies, Temporary if no case ended, Conflict beside another run.
    """
    _need_policies(cluster, suite.SUITE)
    program = await _prepare(cluster, suite, order.binaries_dir, progress)
    directory = order.results or Path(cluster.dir, suite.SUITE.removesuffix(".test"))
    results.make_folder(directory)
    with directory_lock(str(directory), holder="run that writes its results there"):
        return await _run(cluster, suite, order, progress, program, directory)


async def _run(
    cluster: Cluster, suite: PolicySuite, order: PolicyOrder, progress: Progress, program: str, directory: Path
) -> Report:
    sctp = await asyncio.to_thread(has_sctp)
    argv = suite.arguments(program, cluster.admin_kubeconfig, focus=order.focus, skip=order.skip, sctp=sctp)
    log, began = directory / "suite.log", time.monotonic()
    lines, last = list[str](), deque[str](maxlen=_LAST_LINES)
    with progress.step(f"{suite.SUITE.removesuffix('.test')} suite") as say:
        if not sctp:
            say("without the cases that need SCTP, which this kernel lacks")

        def take(line: str) -> None:
            last.append(line)
            if suite.is_read(line):
                lines.append(line)
            if suite.ends_case(line):
                ended = suite.read_output(lines)
                say(f"{len(ended)} cases finished, {sum(one.outcome == 'failed' for one in ended)} failed")

        status = await run_lines(argv, log=str(log), on_line=take, on_text=lambda piece: None)
    found = suite.read_output(lines)
    if not found:
        raise results.missing("result", suite.SUITE, status, last, log)
    return await asyncio.to_thread(results.write, directory, found, time.monotonic() - began, status)


def _need_policies(cluster: Cluster, suite: str) -> None:
    if not cluster.options.enforces_policies:
        raise Invalid(
            "its nodes do not enforce network policies",
            obj=f"cluster {cluster.name}",
            step=f"run the suite {suite}",
            action=f"Make one with {ours(cluster.name, 'up')}: no --no-network-policy, --kubeadm or --agent upstream.",
        )


async def _prepare(cluster: Cluster, suite: PolicySuite, binaries_dir: Path | None, progress: Progress) -> str:
    """Build or find the suite's program and put the image of its pods on the nodes; the program's path."""
    from controlplane.binaries.work import ensure_in_thread
    from controlplane.images.work import binaries_for, ensure_images

    cache, names = Path(cache_root()), (suite.IMAGE,)
    with progress.step("binaries and images of the suite") as say:
        wanted = (suite.SUITE, "ctr", *binaries_for(names))
        found = await ensure_in_thread(wanted, cache_dir=cache, progress=say, binaries_dir=binaries_dir)
        images = await asyncio.to_thread(ensure_images, names, cache_dir=cache, binaries=found, progress=say)
    tools = replace(Tools({}, "", ""), binaries={name: str(found.path(name)) for name in (suite.SUITE, "ctr")})
    with progress.step("images on the nodes") as say:
        for node in cluster.nodes:
            say(await import_images(cluster, node, tools, images, exactly=True))
    return str(found.path(suite.SUITE))
