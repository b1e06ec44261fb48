"""Runs cyclonus against a cluster whose nodes enforce policies."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from dataclasses import asdict
from pathlib import Path

from controlplane.cluster.model import Cluster
from controlplane.machine.edge import files
from controlplane.machine.edge.streamed import run_lines
from controlplane.progress import Progress
from controlplane.suites.plan import cyclonus as plan
from controlplane.suites.work.conformance import Report
from controlplane.suites.work.network_policy_api import PolicyOrder
from controlplane.suites.work.preparing import has_sctp, need_policies, prepare
from nodelib.errors import Temporary


async def run(cluster: Cluster, order: PolicyOrder, progress: Progress) -> Report:
    """Run the cases with the tags `order.focus`, by default all.

    Raises Invalid for a cluster without policies, Temporary if no case ended.
    """
    need_policies(cluster, plan.SUITE)
    suite = await prepare(cluster, plan.SUITE, plan.IMAGE, order.binaries_dir, progress)
    directory = order.results or Path(cluster.dir, plan.SUITE)
    directory.mkdir(parents=True, exist_ok=True)
    files.refuse_of_others(directory, "write the results of a suite")
    sctp = await asyncio.to_thread(has_sctp)
    argv = plan.arguments(suite, cluster.admin_kubeconfig, include=order.focus, exclude=order.skip, sctp=sctp)
    log, began = directory / "suite.log", time.monotonic()
    lines, last = list[str](), deque[str](maxlen=4)
    with progress.step(plan.SUITE) as say:
        if not sctp:
            say("without the cases that need SCTP, which this kernel lacks")

        def take(line: str) -> None:
            last.append(line)
            if plan.is_read(line):
                lines.append(line)
            if line.startswith("finished policy #"):
                results = plan.read_output(lines)
                say(f"{len(results)} cases finished, {sum(one.outcome == 'failed' for one in results)} failed")

        status = await run_lines(argv, log=str(log), on_line=take, on_text=lambda piece: None)
    results = plan.read_output(lines)
    if not results:
        raise Temporary(
            f"the suite exited with status {status} and without a result: {' | '.join(last)}",
            obj=plan.SUITE,
            action=f"See its log: {log}",
        )
    seconds = time.monotonic() - began
    data = {"seconds": round(seconds, 1), "status": status, "results": [asdict(one) for one in results]}
    await asyncio.to_thread(files.write, str(directory / "results.json"), json.dumps(data, indent=1), 0o644)
    return Report(results, directory, seconds, status)
