"""PodMaterials: gather what a pod needs, have the plans decide, have the edges carry it out.

One instance serves all pods of the node; everything it remembers of a pod can be lost at any
moment and is found again from the API and from the pod's directory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from agent.common.model.pod_settings import PodDefaults, PodPaths
from agent.common.model.pods import Json, Pod
from agent.common.plan import names
from agent.containers.model import ContainerInputs, PreparedPod
from agent.containers.plan import container as container_plan
from agent.containers.plan import dns, mounts, sandbox, security
from agent.containers.work.views import ContainerViews
from agent.images.model.pulls import PullCredential
from agent.images.plan import keyring
from agent.resources.plan import cgroups
from agent.volumes.model.csi import CsiVolume
from agent.volumes.model.sources import SECRET, ObjectRef
from agent.volumes.model.volumes import DiskVolume, VolumePlan
from agent.volumes.plan import volumes
from agent.volumes.work.faults import blocking, well_formed
from agent.volumes.work.gathering import Gatherer
from agent.volumes.work.world import VolumeEdges
from nodelib.errors import NodewrightError, Temporary
from nodelib.threads import alone

log = logging.getLogger(__name__)


class PodMaterialsWork:
    """The PodMaterials of agent/common/ports.py."""

    def __init__(self, settings: PodDefaults, edges: VolumeEdges) -> None:
        self._settings = settings
        self._objects = edges.objects
        self._gatherer = Gatherer(edges.objects, edges.certificates)
        self._views = ContainerViews(settings, edges.objects, edges.disk)
        self._disk = edges.disk
        self._csi = edges.csi
        self._node = edges.node
        self._warn = edges.warn
        self._cgroups = edges.cgroups
        self._warned: dict[str, set[tuple[str, str]]] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._live: set[str] = set()

    def paths(self, uid: str) -> PodPaths:
        return PodPaths(self._settings.root_dir, uid)

    async def prepare(self, pod: Pod) -> PreparedPod:
        """See PodMaterials. Everything is fetched at once; a second call finds it all in place."""
        paths = self.paths(pod.uid)
        self._live.add(pod.uid)
        with well_formed(pod):
            names.check_names(pod)
            gathered, services = await asyncio.gather(self._gatherer.everything(pod), self._gatherer.services(pod))
            plans = volumes.plan_volumes(pod, gathered, self._node())
            served = [plan for plan in plans if isinstance(plan, CsiVolume)]
            async with self._lock(pod.uid):
                mounted = await blocking(pod, "volumes", lambda: self._disk.set_up(paths, _on_disk(plans)))
                if served:
                    mounted |= await self._csi.mount(pod, paths, served)
        return PreparedPod(volumes=mounted, hosts_file=paths.etc_hosts, services=tuple(services))

    async def sure(self, pod: Pod) -> bool:
        """See PodMaterials. The objects are fetched, and stay known for prepare()."""
        with well_formed(pod):
            names.check_names(pod)
            wanted = volumes.needs(pod)
            if not volumes.simple(pod, wanted):
                return False
            self._live.add(pod.uid)
            objects, _ = await asyncio.gather(self._gatherer.objects_of(pod, wanted), self._gatherer.services(pod))
            return volumes.fits(pod, objects, wanted, self._node())

    async def refresh(self, pod: Pod) -> None:
        """See PodMaterials. A volume whose source is gone keeps its last content; the others are still updated."""
        paths = self.paths(pod.uid)
        with well_formed(pod):
            names.check_names(pod)
            gathered = await self._gatherer.everything(pod)
            plans, problems = volumes.plan_updates(pod, gathered, self._node())
        async with self._lock(pod.uid):
            changed = await blocking(pod, "update of volumes", lambda: self._disk.update(paths, _on_disk(plans)))
        if pod.uid not in self._live:
            self._gatherer.forget(pod.uid)  # released meanwhile: nothing may stay watched for it
        if changed:
            log.info("pod %s: updated volumes %s", pod.full_name, ", ".join(changed))
        if problems:
            raise problems[0]

    async def sandbox_config(self, pod: Pod, materials: PreparedPod, attempt: int) -> Json:
        """See PodMaterials."""
        with well_formed(pod):
            policy = self._cgroups.policy.of(throttled=not self._cgroups.unthrottled(pod))
            overhead, whole = cgroups.sandbox_resources(pod, policy)
            return sandbox.sandbox_config(
                pod,
                self._settings,
                await self._dns(pod),
                cgroup_parent=materials.cgroup_parent,
                attempt=attempt,
                resources=whole,
                overhead=overhead,
            )

    async def container_config(
        self, pod: Pod, container: Json, materials: PreparedPod, creation: ContainerInputs
    ) -> Json:
        """See PodMaterials."""
        node, ips = self._node(), creation.ips
        with well_formed(pod):
            names.check_names(pod)
            context = security.container_context(
                pod,
                container,
                creation.image,
                self._settings,
                target_id=creation.target_id,
                extra_masked=node.thermal_throttle_paths,
            )
            variables = await self._views.environment(pod, container, materials, ips, node)
            made = await self._views.mounts(pod, container, materials, variables, ips, node)
            blocks = mounts.plan_devices(pod, container, materials.volumes)
            return container_plan.container_config(
                pod,
                container,
                attempt=creation.attempt,
                image_ref=creation.image_ref,
                env=variables,
                mounts=made,
                resources=self.container_resources(pod, container),
                security_context=context,
                devices=blocks,
                given=creation.given,
            )

    def container_resources(self, pod: Pod, container: Json) -> Json:
        """See PodMaterials."""
        return cgroups.container_resources(pod, container, self._cgroups.policy, self._cgroups.machine)

    async def release(self, uid: str) -> None:
        """See PodMaterials."""
        async with self._lock(uid):
            try:
                await self._csi.release(self.paths(uid))
                await alone(self._disk.tear_down, self.paths(uid))
            except OSError as error:
                raise Temporary(
                    str(error),
                    obj=f"pod {uid}",
                    step="take its volumes down",
                    action="See what holds the path (fuser -m PATH, findmnt); it is tried again.",
                ) from error
        self._live.discard(uid)
        self._gatherer.forget(uid)
        self._warned.pop(uid, None)
        self._locks.pop(uid, None)

    async def pods_on_disk(self) -> list[str]:
        """UIDs that have a directory here: after a restart, the ones nobody wants are released."""
        return await asyncio.to_thread(self._disk.pods)

    async def pull_auth(self, pod: Pod, image: str) -> list[PullCredential]:
        """See PodMaterials. A secret that is missing or malformed is warned of and left out."""
        configs: list[dict[str, PullCredential]] = []
        for name in [ref["name"] for ref in pod.spec.get("imagePullSecrets") or [] if ref.get("name")]:
            problem = "not found"
            try:
                found = await self._objects.object(pod, ObjectRef(SECRET, name))
                if found is not None:
                    configs.append(keyring.of_secret(found))
                    continue
            except NodewrightError as error:
                problem = error.message
            message = f"Unable to retrieve some image pull secrets ({name}: {problem}); the pull may not succeed."
            self._warn_once(pod, (("FailedToRetrieveImagePullSecret", message),))
        return keyring.match(image, configs)

    async def _dns(self, pod: Pod) -> dns.Dns:
        text = ""
        if self._settings.resolv_conf:
            text = await blocking(pod, "DNS", lambda: self._disk.read_text(self._settings.resolv_conf))
        made = dns.pod_dns(pod, self._settings, dns.parse_resolv_conf(text), self._node().host_ips)
        self._warn_once(pod, made.warnings)
        return made

    def _lock(self, uid: str) -> asyncio.Lock:
        """One hand at a time in a pod's directory: a refresh runs beside the pod's worker."""
        return self._locks.setdefault(uid, asyncio.Lock())

    def _warn_once(self, pod: Pod, warnings: tuple[tuple[str, str], ...]) -> None:
        said = self._warned.setdefault(pod.uid, set())
        for reason, message in warnings:
            if (reason, message) not in said:
                said.add((reason, message))
                self._warn(pod, reason, message)


def _on_disk(plans: Sequence[VolumePlan]) -> list[DiskVolume]:
    return [plan for plan in plans if not isinstance(plan, CsiVolume)]
