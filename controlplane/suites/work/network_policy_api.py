"""Runs the conformance suite of sigs.k8s.io/network-policy-api against a cluster of `up --network-policy`."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from controlplane.cluster.advice import ours
from controlplane.cluster.edge.roots import cache_root
from controlplane.cluster.model import Cluster
from controlplane.cluster.plan.components import Tools
from controlplane.cluster.work.node_images import import_images
from controlplane.machine.edge import files
from controlplane.machine.edge.streamed import run_lines
from controlplane.progress import Progress
from controlplane.suites.plan import network_policy_api as plan
from controlplane.suites.work.conformance import Report
from nodelib.errors import Invalid, Temporary


@dataclass(frozen=True, slots=True)
class PolicyOrder:
    """What to run, and where to write the results."""

    focus: str = ""
    skip: str = ""
    results: Path | None = None
    binaries_dir: Path | None = None


async def run(cluster: Cluster, order: PolicyOrder, progress: Progress) -> Report:
    """Run the cases. Raises Invalid for a cluster without policies, Temporary if the suite reports no case."""
    if not cluster.options.enforces_policies:
        raise Invalid(
            "its nodes do not enforce network policies",
            obj=f"cluster {cluster.name}",
            step="run the suite of network-policy-api",
            action=f"Make a cluster with {ours(cluster.name, 'up', '--network-policy')}.",
        )
    suite = await _prepare(cluster, order, progress)
    directory = order.results or Path(cluster.dir, "network-policy-api")
    directory.mkdir(parents=True, exist_ok=True)
    sctp = await asyncio.to_thread(_has_sctp)
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


async def _prepare(cluster: Cluster, order: PolicyOrder, progress: Progress) -> str:
    from controlplane.binaries.work import ensure
    from controlplane.images.work import binaries_for, ensure_images

    cache, names = Path(cache_root()), (plan.IMAGE,)
    with progress.step("binaries and images of the suite") as say:
        wanted = (plan.SUITE, "ctr", *binaries_for(names))
        found = await asyncio.to_thread(ensure, wanted, cache_dir=cache, progress=say, binaries_dir=order.binaries_dir)
        images = await asyncio.to_thread(ensure_images, names, cache_dir=cache, binaries=found, progress=say)
    tools = replace(Tools({}, "", ""), binaries={name: str(found.path(name)) for name in (plan.SUITE, "ctr")})
    with progress.step("images on the nodes") as say:
        for node in cluster.nodes:
            say(await import_images(cluster, node, tools, images, exactly=True))
    return str(found.path(plan.SUITE))


def _has_sctp() -> bool:
    try:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP).close()
    except OSError:
        return False
    return True
