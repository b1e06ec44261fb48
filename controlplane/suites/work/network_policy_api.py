"""Runs the conformance suite of sigs.k8s.io/network-policy-api against a cluster whose nodes enforce policies."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from controlplane.cluster.model import Cluster
from controlplane.machine.edge import files
from controlplane.machine.edge.streamed import run_lines
from controlplane.progress import Progress
from controlplane.suites.plan import network_policy_api as plan
from controlplane.suites.work.conformance import Report
from controlplane.suites.work.preparing import has_sctp, need_policies, prepare
from nodelib.errors import Temporary


@dataclass(frozen=True, slots=True)
class PolicyOrder:
    """What to run, and where to write the results."""

    focus: str = ""
    skip: str = ""
    results: Path | None = None
    binaries_dir: Path | None = None


async def run(cluster: Cluster, order: PolicyOrder, progress: Progress) -> Report:
    """Run the cases. Raises Invalid for a cluster without policies, Temporary if the suite reports no case."""
    need_policies(cluster, plan.SUITE)
    suite = await prepare(cluster, plan.SUITE, plan.IMAGE, order.binaries_dir, progress)
    directory = order.results or Path(cluster.dir, "network-policy-api")
    directory.mkdir(parents=True, exist_ok=True)
    files.refuse_of_others(directory, "write the results of a suite")
    sctp = await asyncio.to_thread(has_sctp)
    argv = plan.arguments(suite, cluster.admin_kubeconfig, focus=order.focus, skip=order.skip, sctp=sctp)
    log, began, lines = directory / "suite.log", time.monotonic(), list[str]()
    with progress.step("network-policy-api suite") as say:
        if not sctp:
            say("without the cases that need SCTP, which this kernel lacks")

        def take(line: str) -> None:
            lines.append(line)
            if line.lstrip().startswith("--- "):
                say(f"{len(plan.read_output(lines))} cases finished")

        status = await run_lines(argv, log=str(log), on_line=take, on_text=lambda piece: None)
    results = plan.read_output(lines)
    if not results:
        raise Temporary(
            f"the suite exited with status {status} and without a result: {' | '.join(lines[-4:])}",
            obj=plan.SUITE,
            action=f"See its log: {log}",
        )
    seconds = time.monotonic() - began
    data = {"seconds": round(seconds, 1), "status": status, "results": [asdict(one) for one in results]}
    await asyncio.to_thread(files.write, str(directory / "results.json"), json.dumps(data, indent=1), 0o644)
    return Report(results, directory, seconds, status)
