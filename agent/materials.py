"""Put together everything behind the PodMaterials port; called by the composition root."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agent.edge.pod_certificates import PodCertificateRequests
from agent.edge.pod_disk import PodDisk
from agent.model.materials import MaterialSettings, NodeContext
from agent.work.materials.pod import PodMaterialsWork
from agent.work.materials.world import CgroupFacts, Csi, MaterialEdges, Warn
from agent.work.pod_certificates import CertificateDesk, Reports
from agent.work.pod_objects import PodObjects
from nodelib.clock import Clock
from nodelib.kube.client import KubeClient
from nodelib.tasks import Work


@dataclass(frozen=True, slots=True)
class BuiltMaterials:
    """`tasks()` are to be supervised, `close()` called at the end."""

    materials: PodMaterialsWork
    objects: PodObjects
    requests: PodCertificateRequests
    certificates: CertificateDesk

    def tasks(self) -> list[tuple[str, Work]]:
        """(name, work) of the long-lived tasks."""
        return [*self.objects.tasks(), *self.requests.tasks()]

    async def close(self) -> None:
        await self.certificates.close()
        await self.objects.close()


def build_materials(
    client: KubeClient,
    settings: MaterialSettings,
    *,
    clock: Clock,
    node: Callable[[], NodeContext],
    cgroups: CgroupFacts,
    notify: Callable[[str], None],
    warn: Warn,
    csi: Csi,
) -> BuiltMaterials:
    """`notify(uid)`: the pod wants refresh() (or another try of prepare());
    `warn`: a Warning event about a pod; `csi`: who mounts what CSI drivers serve.
    """
    objects = PodObjects(client, clock, notify)
    requests = PodCertificateRequests(client, settings.node_name)
    certificates = CertificateDesk(requests, clock, settings.node_name, node, Reports(notify, warn))
    edges = MaterialEdges(objects, certificates, PodDisk(settings.root_dir), csi, node, warn, cgroups)
    return BuiltMaterials(PodMaterialsWork(settings, edges), objects, requests, certificates)
