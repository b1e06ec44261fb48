"""Joins the volumes of pods and the container configurations, which read the same watched API objects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agent.common.model.pod_settings import NodeContext, PodDefaults
from agent.common.work.pod_warnings import PodWarnings, Warn
from agent.containers.work.configs import CgroupFacts, ContainerConfigDeps, ContainerConfigs
from agent.userns.work import UserNamespaces
from agent.volumes.edge.local_disk import LocalDisk
from agent.volumes.edge.pod_certificates import PodCertificateRequests
from agent.volumes.edge.pod_disk import PodDisk
from agent.volumes.model.detection import CACHE, DEFAULT_TTL, WATCH, ChangeDetection
from agent.volumes.ports import CsiMounter
from agent.volumes.work.local_volumes import LocalVolumes
from agent.volumes.work.manager import Measured, VolumeManager, VolumeManagerDeps, unmeasured
from agent.volumes.work.pod_certificates import PodCertificateManager, Reports
from agent.volumes.work.pod_objects import ObjectStore, PodObjects
from agent.volumes.work.polled_objects import PolledObjects
from agent.volumes.work.watched_objects import WatchedObjects
from nodelib.clock import Clock
from nodelib.json_values import Json
from nodelib.kube.client import KubeClient
from nodelib.tasks import Work
from nodelib.text_numbers import is_number

_TTL = "node.alpha.kubernetes.io/ttl"  # the node controller's: seconds, the more the larger the cluster


@dataclass(frozen=True, slots=True)
class BuiltVolumes:
    """Run `tasks()` until the end, then call close()."""

    manager: VolumeManager
    configs: ContainerConfigs
    warnings: PodWarnings
    objects: PodObjects
    requests: PodCertificateRequests
    certificates: PodCertificateManager
    local: LocalVolumes

    def tasks(self) -> list[tuple[str, Work]]:
        """(name, work) of the long-lived tasks."""
        return [*self.objects.tasks(), *self.requests.tasks()]

    async def close(self) -> None:
        await self.certificates.close()
        await self.objects.close()


def object_store(
    client: KubeClient,
    detection: ChangeDetection,
    *,
    clock: Clock,
    notify: Callable[[str], None],
    own_node: Callable[[], Json | None],
) -> ObjectStore:
    """Where pods' ConfigMaps and Secrets come from, as configMapAndSecretChangeDetectionStrategy says."""

    def ttl() -> float:
        annotations = ((own_node() or {}).get("metadata") or {}).get("annotations") or {}
        given = annotations.get(_TTL, "")
        return float(given) if is_number(given) else DEFAULT_TTL

    if detection.strategy == WATCH:
        return WatchedObjects(client, clock, notify)
    kept = ttl if detection.strategy == CACHE else None
    return PolledObjects(client, clock, notify, period=detection.period, ttl=kept)


def build_volumes(
    client: KubeClient,
    settings: PodDefaults,
    *,
    clock: Clock,
    node: Callable[[], NodeContext],
    cgroups: CgroupFacts,
    notify: Callable[[str], None],
    warn: Warn,
    csi: CsiMounter,
    user_namespaces: UserNamespaces,
    store: ObjectStore | None = None,
    measured: Measured = unmeasured,
) -> BuiltVolumes:
    """`notify(uid)` is called when the volumes of a pod should be refreshed, or mounted after a failed attempt.

    `warn` emits a Warning event about a pod; `csi` mounts the volumes of CSI drivers; `store`: object_store().
    `measured` is told of each operation on a volume.
    """
    objects = PodObjects(client, clock, notify, store)
    requests = PodCertificateRequests(client, settings.node_name)
    certificates = PodCertificateManager(requests, clock, settings.node_name, node, Reports(notify, warn))
    disk, warnings = PodDisk(settings.root_dir), PodWarnings(warn)
    local = LocalVolumes(settings.root_dir, LocalDisk(settings.root_dir), warnings.warn_once)
    return BuiltVolumes(
        manager=VolumeManager(
            settings.root_dir, VolumeManagerDeps(objects, certificates, disk, csi, local, node, measured, clock)
        ),
        configs=ContainerConfigs(
            settings, ContainerConfigDeps(objects, disk, node, warnings, cgroups, user_namespaces)
        ),
        warnings=warnings,
        objects=objects,
        requests=requests,
        certificates=certificates,
        local=local,
    )
