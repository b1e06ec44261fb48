"""How much of each pod's start its trace covers in upstream's smoke tier: `python -m tests.bench.trace_coverage`.

A line for each pod: the share of the time from the API's event of its creation until the API shows it ready, the same
from when its node heard of it, and the longest gaps between two spans. What is before that is the API server's and the
scheduler's.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.pods.plan.spans import START
from controlplane.cluster.model import Cluster
from nodelib.json_values import Json
from nodelib.kube.access import load_kubeconfig
from nodelib.kube.client import KubeClient
from nodelib.tasks import cancel_and_wait
from tests.cluster.command_line import cli, raised
from tests.cluster.test_traces import covered, of_trace
from tests.cluster.world import is_ready
from tests.fakes.collector import collector

NAME, COLLECTOR = "tcover", "10.89.92.1:14319"
LEAVE = 12.0  # seconds until the last spans have left
_FILE = f"""
apiVersion: nodewright.io/v1alpha1
kind: Cluster
name: {NAME}
nodes: [{{name: node1}}, {{name: node2}}]
networking: {{nodeSubnet: 10.89.92.0/24, uplink: false}}
kubelet: {{tracing: {{endpoint: "{COLLECTOR}", samplingRatePerMillion: 1000000}}}}
"""


@dataclass(slots=True)
class Start:
    """Wall seconds at which the API said so; `ready` 0: never."""

    name: str
    created: float
    ready: float = 0.0


async def _follow(api: KubeClient, starts: dict[str, Start]) -> None:
    async for event in api.stream("/api/v1/pods", {}):
        meta, now = event["object"]["metadata"], time.time()
        start = starts.setdefault(meta["uid"], Start(f"{meta['namespace']}/{meta['name']}", now))
        if is_ready(event["object"]) and not start.ready:
            start.ready = now


def _gaps(spans: list[Json], start: Start) -> str:
    said = sorted(
        (one for one in spans if one["name"] not in (START, "syncPod")), key=lambda one: one["start_time_unix_nano"]
    )
    at, before, found = start.created, "created", list[tuple[float, str]]()
    for one in said:
        begin, end = one["start_time_unix_nano"] / 1e9, one["end_time_unix_nano"] / 1e9
        found.append((begin - at, f"{before} to {one['name']}"))
        if end > at:
            at, before = end, one["name"]
    return ", ".join(f"{gap * 1000:.0f} ms {where}" for gap, where in sorted(found, reverse=True)[:3] if gap > 0.001)


def report(starts: Mapping[str, Start], spans: Mapping[str, list[Json]]) -> None:
    shares = []
    for uid, start in starts.items():
        roots = [one for one in spans[uid] if one["name"] == START]
        if start.ready and roots:
            heard = max(start.created, roots[0]["start_time_unix_nano"] / 1e9)
            share, own = (covered(spans[uid], since, start.ready) for since in (start.created, heard))
            shares.append(share)
            took = f"{start.ready - start.created:.2f} s, heard of after {(heard - start.created) * 1000:.0f} ms"
            print(f"{share:6.1%} {own:6.1%}  {start.name} ({took}): {_gaps(spans[uid], start)}")
    print(f"{len(shares)} pods: worst {min(shares):.1%}, median {statistics.median(shares):.1%}")


async def measured(cluster: Cluster) -> None:
    starts: dict[str, Start] = {}
    async with (
        KubeClient(load_kubeconfig(cluster.admin_kubeconfig), user_agent="nodewright-bench") as api,
        collector(COLLECTOR) as there,
    ):
        following = asyncio.create_task(_follow(api, starts))
        await asyncio.sleep(3)  # what is there already is no start
        old = set(starts)
        await asyncio.to_thread(cli, "conformance", "--name", NAME, "--tier", "smoke", "--procs", "2", timeout=600)
        await asyncio.sleep(LEAVE)
        await cancel_and_wait(following)
        new = {uid: start for uid, start in starts.items() if uid not in old}
        report(new, {uid: of_trace(there, uid) for uid in new})


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cluster.yaml"
        file.write_text(_FILE)
        with raised(NAME, "--config", str(file), "--images", "conformance", "--no-demo", timeout=600) as cluster:
            asyncio.run(measured(cluster))


if __name__ == "__main__":
    main()
