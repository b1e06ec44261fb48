"""Everything that an agent exposes: names, help, types, labels and buckets, in their order, without the values."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from prometheus_client import CollectorRegistry

from agent.certificates.edge.metrics import CertificateCollector, CertificateMetrics
from agent.common.metric import Metric
from agent.common.metrics import CONTAINER_TYPES, Metrics, exposition, image_size_class
from agent.common.pod_metrics import PodMetrics
from agent.devices.edge.dra_metrics import DraMetrics
from agent.devices.edge.pod_resources_metrics import PodResourcesMetrics
from agent.logs.edge.log_sizes import LogSizes
from agent.managers.edge.metrics import ManagerMetrics
from agent.managers.model.counts import DURATION_BUCKETS, AdmissionCounts, ManagerCounts
from agent.pods.edge.pod_counts import PodCounts
from agent.pods.edge.resize_counts import ResizeCounts
from agent.pods_api.edge.metrics import PodsApiMetrics
from agent.resources.metrics import KeptMemory
from agent.resources.model import ResizeCondition, ResizeState
from agent.resources.plan.memory_qos import Kept
from agent.resources.plan.resize_labels import counted
from agent.server.work.request_metrics import RequestMetrics
from agent.stats.model import FsUsage
from agent.volumes.edge.certificate_metrics import PodCertificateCounts
from agent.volumes.edge.selinux_metrics import TEXTS, SelinuxCounts
from agent.volumes.edge.volume_metrics import VolumeCounts, VolumeStatsCollector
from nodelib.clock import SystemClock
from tests.builders.pods import pod
from tests.fakes.agent_view import FakeView

GOLDEN = Path(__file__).parents[3] / "golden" / "agent"


def names_and_labels(registry: CollectorRegistry) -> str:
    lines = exposition(registry).decode().splitlines()
    return "\n".join(line if line.startswith("#") else line.rsplit(" ", 1)[0] for line in lines) + "\n"


@pytest.fixture
def metrics(tmp_path: Path) -> Metrics:
    """A series of each metric that has labels, and all that the composition root registers."""
    made = Metrics("node-1", "v1.37.1")
    feed(made)
    registry = made.registry
    counts = ManagerCounts(AdmissionCounts(), 1, 1, {0: 1}, durations=(0,) * (len(DURATION_BUCKETS) + 1))
    registry.register(ManagerMetrics(lambda: counts))
    resources = PodResourcesMetrics(registry)
    for method in ("List", "GetAllocatableResources", "Get"):
        resources.asked("v1", method)
        resources.failed("v1", method)
    claims = DraMetrics(registry, lambda: ())
    with claims.operation("PrepareResources"), claims.call("gpu.example.com", "/DRAPlugin/NodePrepareResources"):
        pass
    registry.register(PodCounts(FakeView(), lambda: []))
    waiting = ResizeState(pending=ResizeCondition(1, 0.0, 0.0, "Deferred", ""))
    registry.register(ResizeCounts(lambda: counted([(pod(), waiting)])))
    registry.register(CertificateCollector(CertificateMetrics, CertificateMetrics))
    registry.register(VolumeCounts(lambda: {("kubernetes.io/configmap", "actual"): 1}))
    registry.register(VolumeStatsCollector(lambda: [(("shop", "data"), FsUsage(at=1))]))
    registry.register(PodCertificateCounts(lambda: {("example.com/signer", "Issued"): 1}))
    logged = pod()
    (tmp_path / f"shop_web_{logged.uid}" / "main").mkdir(parents=True)
    registry.register(LogSizes(str(tmp_path), lambda: [(logged, "main")]))
    registry.register(KeptMemory(lambda: Kept(1, 2)))
    asked = PodsApiMetrics(registry)
    for method in ("ListPods", "GetPod", "WatchPods"):
        asked.answered(method, "OK")
    selinux = SelinuxCounts(registry)
    for what in TEXTS:
        selinux.add(what, "kubernetes.io/csi:driver", "RWOP")
    asyncio.run(_one_request(RequestMetrics(registry, SystemClock())))
    return made


async def _one_request(counted: RequestMetrics) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return web.Response()

    await counted.filter("readwrite")(make_mocked_request("GET", "/healthz"), handler)


def feed(metrics: Metrics) -> None:
    with metrics.runtime_operation("version"):
        pass
    with pytest.raises(RuntimeError), metrics.runtime_operation("version"):
        raise RuntimeError
    metrics.pod_worker_duration.labels("sync").observe(0.1)
    for container_type in CONTAINER_TYPES.values():
        metrics.started_containers.labels(container_type).inc()
        metrics.terminated_containers.labels(container_type, "0", "Completed").inc()
        metrics.started_containers_errors.labels(container_type, "RunContainerError").inc()
    with metrics.cgroup_operation("create"):
        metrics.storage_operation("kubernetes.io/configmap", "volume_mount", 0.1)
    with metrics.running_sandbox("runc"):
        pass
    with pytest.raises(RuntimeError), metrics.running_sandbox("runc"):
        raise RuntimeError
    metrics.ensure_image_requests.labels("always", "false", "true").inc()
    metrics.evictions.labels("memory.available").inc()
    for one in vars(PodMetrics).values():
        if isinstance(one, Metric) and one.labels:
            metrics.series[one.name].labels(*one.labels)
    metrics.spans_dropped.labels("queue_full").inc()
    metrics.image_pull_duration.labels(image_size_class(20 << 20)).observe(2.0)
    metrics.image_garbage_collected.labels("space").inc()
    for result in ("successful", "failed", "unknown"):
        metrics.prober_probe.labels("Liveness", result, "main", "web", "shop", "u1").inc()
    metrics.prober_probe_duration.labels("Liveness", "main", "web", "shop").observe(0.1)


def test_everything_on_metrics(metrics: Metrics) -> None:
    assert names_and_labels(metrics.registry) == (GOLDEN / "metrics.txt").read_text()


def test_everything_on_metrics_probes(metrics: Metrics) -> None:
    assert names_and_labels(metrics.probe_registry) == (GOLDEN / "metrics_probes.txt").read_text()
