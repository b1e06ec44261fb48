"""Put together everything behind the PodMaterials port; called by the composition root."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agent.common.model.pod_settings import NodeContext, PodDefaults
from agent.containers.work.pod import PodMaterialsWork
from agent.volumes.edge.pod_certificates import PodCertificateRequests
from agent.volumes.edge.pod_disk import PodDisk
from agent.volumes.work.pod_certificates import PodCertificateManager, Reports
from agent.volumes.work.pod_objects import PodObjects
from agent.volumes.work.world import CgroupFacts, Csi, VolumeEdges, Warn
from nodelib.clock import Clock
from nodelib.kube.client import KubeClient
from nodelib.tasks import Work


@dataclass(frozen=True, slots=True)
class BuiltVolumes:
    """`tasks()` are to be supervised, `close()` called at the end."""

    materials: PodMaterialsWork
    objects: PodObjects
    requests: PodCertificateRequests
    certificates: PodCertificateManager

    def tasks(self) -> list[tuple[str, Work]]:
        """(name, work) of the long-lived tasks."""
        return [*self.objects.tasks(), *self.requests.tasks()]

    async def close(self) -> None:
        await self.certificates.close()
        await self.objects.close()


def build_volumes(
    client: KubeClient,
    settings: PodDefaults,
    *,
    clock: Clock,
    node: Callable[[], NodeContext],
    cgroups: CgroupFacts,
    notify: Callable[[str], None],
    warn: Warn,
    csi: Csi,
) -> BuiltVolumes:
    """`notify(uid)`: the pod wants refresh() (or another try of prepare());
    `warn`: a Warning event about a pod; `csi`: who mounts what CSI drivers serve.
    """
    objects = PodObjects(client, clock, notify)
    requests = PodCertificateRequests(client, settings.node_name)
    certificates = PodCertificateManager(requests, clock, settings.node_name, node, Reports(notify, warn))
    edges = VolumeEdges(objects, certificates, PodDisk(settings.root_dir), csi, node, warn, cgroups)
    return BuiltVolumes(PodMaterialsWork(settings, edges), objects, requests, certificates)
