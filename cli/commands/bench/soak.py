"""`nodewright bench soak`: minutes of random changes under our proxy; its rules are compared with a fresh start's."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from cli.bench.services.churn import Churn
from cli.bench.services.environment import answering_pods, node_object, populate
from cli.bench.services.objects import Size
from cli.bench.services.soak import Soak, report
from cli.bench.services.subject import NODE, Subject
from cli.display.steps import Display
from cli.errors import need_root
from controlplane.binaries.work import ensure
from controlplane.cluster.edge import lab as edge
from controlplane.cluster.edge.lab import Lab
from controlplane.cluster.edge.roots import cache_root
from nodelib.clock import SystemClock
from nodelib.kube.client import KubeClient


def run(*, modes: str, services: int, minutes: float, seed: int, plain: bool, binaries: Path | None) -> bool:
    """Churn; True if the kernel ever differed from what a fresh start writes, or if nothing was compared."""
    need_root("bench")
    with Display(plain=plain or None) as display:
        with display.step("binaries") as say:
            cache = Path(cache_root())
            names = ["etcd", "kube-apiserver"]
            paths = ensure(names, cache_dir=cache, progress=say, binaries_dir=binaries)
        edge.enter()
        folder = paths.path("etcd").parent
        done, refused = asyncio.run(_soak(tuple(modes.split(",")), Size(services), 60 * minutes, seed, folder, display))
    for line in report(done.comparisons):
        print(line)
    if refused:
        print("refused by the API server (name or port already taken):", refused)
    return not done.comparisons or any(one.difference for one in done.comparisons)


async def _soak(
    modes: tuple[str, ...], size: Size, seconds: float, seed: int, binaries: Path, display: Display
) -> tuple[Soak, dict[str, int]]:
    clock = SystemClock()
    lab = Lab(Path(tempfile.mkdtemp(prefix="nodewright-soak-")), binaries, clock)
    try:
        await lab.prepare()
        pods = await answering_pods(lab)
        with display.step(f"{size} Services") as say:
            await populate(lab, size, say)
        async with KubeClient(lab.access, user_agent="nodewright-soak") as client:
            await client.post("/api/v1/nodes", node_object())
            soak = Soak(lab, clock, pods, lambda mode: Subject(lab, "nodewright", mode, binaries, clock))
            churn = Churn(client, size, NODE, seed)
            with display.step(f"churn for {seconds / 60:g} min, seed {seed}") as say:
                await soak.run(modes, churn, seconds, say)
        return soak, churn.failed
    finally:
        await lab.close()
