"""A real Prometheus beside a node: it scrapes the node's daemons as people's own would, and answers queries.

It runs in the node's network namespace, because a proxy shows its metrics on 127.0.0.1 only.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

import aiohttp
import pytest

from controlplane.cluster.edge.roots import cache_root
from controlplane.cluster.model import Cluster
from nodelib.json_values import Json
from nodelib.kube.access import load_kubeconfig
from tests.dashboards.queries import RECORDED, Rule

BUILT = sorted(Path(cache_root(), "bin").glob("prometheus-*/prometheus"))
WHY_NOT = "Prometheus is not built: python -m tests.cluster.prometheus_build"
needs_prometheus = pytest.mark.skipif(not BUILT, reason=WHY_NOT)
PATHS = {
    "kubelet": "/metrics",
    "cadvisor": "/metrics/cadvisor",
    "probes": "/metrics/probes",
    "resource": "/metrics/resource",
}
_PORT, _EVERY = 19090, "2s"


@dataclass(frozen=True)
class Prometheus:
    """The one of `address`."""

    address: str
    session: aiohttp.ClientSession

    async def ask(self, query: str) -> list[Json]:
        """The series of an instant query. Raises AssertionError with what Prometheus has against the query."""
        async with self.session.get(f"{self.address}/api/v1/query", params={"query": query}) as response:
            answer = await response.json()
        assert answer["status"] == "success", f"{query}: {answer}"
        found: list[Json] = answer["data"]["result"]
        return found

    async def has_data(self, query: str) -> bool:
        """Whether it gives at least one number: a quantile of nothing is NaN."""
        return any(isfinite(float(one["value"][1])) for one in await self.ask(query))

    async def targets(self) -> dict[str, str]:
        """Job -> "" if it is scraped, else why not."""
        async with self.session.get(f"{self.address}/api/v1/targets") as response:
            found = (await response.json())["data"]["activeTargets"]
        return {one["labels"]["job"]: "" if one["health"] == "up" else one["lastError"] or "not yet" for one in found}


@contextlib.asynccontextmanager
async def prometheus(
    cluster: Cluster, folder: Path, *, more: Sequence[str] = (), rules: Sequence[Rule] = RECORDED
) -> AsyncIterator[Prometheus]:
    """Scrapes the first node, and `more` ("host:port") as kube-state-metrics, until the block ends."""
    node = cluster.nodes[0]
    groups = [{"name": "mixin", "interval": _EVERY, "rules": [_rule(one) for one in rules]}]
    (folder / "rules.json").write_text(json.dumps({"groups": groups}))
    (folder / "prometheus.json").write_text(json.dumps(_config(cluster, folder, more)))
    argv = [
        "nsenter", f"--net={cluster.namespace(node.name, 'net')}", str(BUILT[-1]),
        f"--config.file={folder / 'prometheus.json'}", f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={node.address}:{_PORT}",
    ]  # fmt: skip
    with (
        (folder / "prometheus.log").open("w") as log,
        subprocess.Popen(argv, stdout=log, stderr=log, cwd="/") as process,
    ):
        try:
            async with aiohttp.ClientSession() as session:
                made = Prometheus(f"http://{node.address}:{_PORT}", session)
                await _until_all_are_scraped(made, process, folder / "prometheus.log")
                yield made
        finally:
            process.kill()


async def _until_all_are_scraped(made: Prometheus, process: subprocess.Popen[bytes], log: Path) -> None:
    last: dict[str, str] = {}
    for _ in range(600):
        assert process.poll() is None, log.read_text()[-2000:]
        with contextlib.suppress(aiohttp.ClientError):
            last = await made.targets()
            if last and not any(last.values()):
                return
        await asyncio.sleep(0.1)
    raise AssertionError(f"not scraped: {last}")


def _rule(one: Rule) -> Json:
    return {"record": one.record, "expr": one.text, "labels": dict(one.labels)}


def _config(cluster: Cluster, folder: Path, more: Sequence[str]) -> Json:
    access, address = load_kubeconfig(cluster.admin_kubeconfig), cluster.nodes[0].address
    for name, data in (("cert", access.cert_data), ("key", access.key_data)):
        (folder / f"{name}.pem").write_bytes(data or b"")
        (folder / f"{name}.pem").chmod(0o600)
    # Who the node is, is not what is tested, and upstream's kubelet has a certificate of its own making.
    tls = {"cert_file": str(folder / "cert.pem"), "key_file": str(folder / "key.pem"), "insecure_skip_verify": True}
    jobs: list[Json] = [
        {
            "job_name": job, "scheme": "https", "metrics_path": path, "tls_config": tls,
            "static_configs": [{"targets": [f"{address}:10250"]}],
        }
        for job, path in PATHS.items()
    ]  # fmt: skip
    jobs.append({"job_name": "kube-proxy", "static_configs": [{"targets": ["127.0.0.1:10249"]}]})
    if more:
        jobs.append(
            {"job_name": "kube-state-metrics", "honor_labels": True, "static_configs": [{"targets": list(more)}]}
        )
    times = {"scrape_interval": _EVERY, "scrape_timeout": _EVERY, "evaluation_interval": _EVERY}
    return {"global": times, "rule_files": [str(folder / "rules.json")], "scrape_configs": jobs}


async def until_data(there: Prometheus, query: str, seconds: float = 60) -> None:
    """Wait until a query gives data."""
    answers: list[bool] = []

    async def ask() -> None:
        while not (answers and answers[-1]):
            answers.append(await there.has_data(query))
            await asyncio.sleep(0.3)

    await asyncio.wait_for(ask(), seconds)
