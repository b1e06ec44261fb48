"""PodMaterials: gather what a pod needs, have the plans decide, have the edges carry it out.

One instance serves all pods of the node; everything it remembers of a pod can be lost at any
moment and is found again from the API and from the pod's directory.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from agent.model.csi import CsiVolume
from agent.model.devices import NO_DEVICES, DeviceGrant
from agent.model.materials import (
    SECRET,
    CertificateNeed,
    Credential,
    DiskVolume,
    Gathered,
    Json,
    MaterialSettings,
    MountPlan,
    NodeContext,
    ObjectRef,
    PodPaths,
    TokenNeed,
    TrustNeed,
    VolumePlan,
)
from agent.model.pods import ImageFacts, Kind, Pod
from agent.model.pulls import PullCredential
from agent.plan import cgroups, dns, env, hosts, keyring, mounts, names, sandbox, security, trust, volumes
from agent.plan import container as container_plan
from agent.ports import Materials, MountedVolume
from nodelib.errors import Invalid, NodewrightError, Permanent, Temporary
from nodelib.threads import alone

log = logging.getLogger(__name__)

_T = TypeVar("_T")


class Objects(Protocol):
    """The API objects that pods refer to (work/pod_objects.py)."""

    async def object(self, pod: Pod, ref: ObjectRef) -> Json | None: ...

    async def token(self, pod: Pod, need: TokenNeed) -> str: ...

    async def trust_bundles(self, pod: Pod) -> Sequence[Json]:
        """All ClusterTrustBundles; the pod hears of changes from now on."""
        ...

    async def claim(self, pod: Pod, name: str) -> Json | None:
        """The PersistentVolume that the claim is bound to; None while it is not."""
        ...

    async def services(self) -> Sequence[Json]:
        """All Services. Raises Temporary until they have been read once."""
        ...

    def forget(self, uid: str) -> None: ...


class Certificates(Protocol):
    """Certificates of pods (work/pod_certificates.py)."""

    async def get(self, pod: Pod, need: CertificateNeed) -> Credential: ...

    def forget(self, uid: str) -> None: ...


class Disk(Protocol):
    """The pod's directory on the node (edge/pod_disk.py). Blocking: called through asyncio.to_thread."""

    def set_up(self, paths: PodPaths, plans: list[DiskVolume]) -> dict[str, MountedVolume]: ...

    def update(self, paths: PodPaths, plans: list[DiskVolume]) -> list[str]: ...

    def bind_sub_path(self, volume: str, path: str, target: str) -> str: ...

    def read_inside(self, volume: str, path: str) -> str | None: ...

    def read_text(self, path: str) -> str: ...

    def write_text(self, path: str, text: str, mode: int) -> None: ...

    def make_directory(self, path: str, mode: int) -> None: ...

    def tear_down(self, paths: PodPaths) -> None: ...

    def pods(self) -> list[str]: ...


class Csi(Protocol):
    """Volumes that CSI drivers serve (work/csi.py)."""

    async def mount(self, pod: Pod, paths: PodPaths, volumes: list[CsiVolume]) -> dict[str, MountedVolume]: ...

    async def release(self, paths: PodPaths) -> None: ...


Warn = Callable[[Pod, str, str], None]


@dataclass(frozen=True, slots=True)
class MaterialEdges:
    """What the work needs of the world. `warn(pod, reason, message)` emits a Warning event."""

    objects: Objects
    certificates: Certificates
    disk: Disk
    csi: Csi
    node: Callable[[], NodeContext]
    warn: Warn
    policy: cgroups.Policy
    machine: cgroups.Machine


class PodMaterialsWork:
    """The PodMaterials of agent/ports.py."""

    def __init__(self, settings: MaterialSettings, edges: MaterialEdges) -> None:
        self._settings = settings
        self._objects = edges.objects
        self._certificates = edges.certificates
        self._disk = edges.disk
        self._csi = edges.csi
        self._node = edges.node
        self._warn = edges.warn
        self._policy = edges.policy
        self.unthrottled: Callable[[Pod], bool] = lambda pod: False
        self._machine = edges.machine
        self._warned: dict[str, set[tuple[str, str]]] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._live: set[str] = set()

    def paths(self, uid: str) -> PodPaths:
        return PodPaths(self._settings.root_dir, uid)

    async def prepare(self, pod: Pod) -> Materials:
        """See PodMaterials. Everything is fetched at once; a second call finds it all in place."""
        paths = self.paths(pod.uid)
        self._live.add(pod.uid)
        with _well_formed(pod):
            names.check_names(pod)
            gathered, services = await asyncio.gather(self._gather(pod), self._services(pod))
            plans = volumes.plan_volumes(pod, gathered, self._node())
            served = [plan for plan in plans if isinstance(plan, CsiVolume)]
            async with self._lock(pod.uid):
                mounted = await _blocking(pod, "volumes", lambda: self._disk.set_up(paths, _on_disk(plans)))
                if served:
                    mounted |= await self._csi.mount(pod, paths, served)
        return Materials(volumes=mounted, hosts_file=paths.etc_hosts, services=tuple(services))

    async def sure(self, pod: Pod) -> bool:
        """See PodMaterials. The objects are fetched, and stay known for prepare()."""
        with _well_formed(pod):
            names.check_names(pod)
            wanted = volumes.needs(pod)
            if not volumes.simple(pod, wanted):
                return False
            self._live.add(pod.uid)
            objects, _ = await asyncio.gather(self._objects_of(pod, wanted), self._services(pod))
            return volumes.fits(pod, objects, wanted, self._node())

    async def refresh(self, pod: Pod) -> None:
        """See PodMaterials. A volume whose source is gone keeps its last content; the others are still updated."""
        paths = self.paths(pod.uid)
        with _well_formed(pod):
            names.check_names(pod)
            gathered = await self._gather(pod)
            plans, problems = volumes.plan_updates(pod, gathered, self._node())
        async with self._lock(pod.uid):
            changed = await _blocking(pod, "update of volumes", lambda: self._disk.update(paths, _on_disk(plans)))
        if pod.uid not in self._live:
            self._let_go(pod.uid)  # released meanwhile: nothing may stay watched for it
        if changed:
            log.info("pod %s: updated volumes %s", pod.full_name, ", ".join(changed))
        if problems:
            raise problems[0]

    async def sandbox_config(self, pod: Pod, materials: Materials, attempt: int) -> Json:
        """See PodMaterials."""
        with _well_formed(pod):
            overhead, whole = cgroups.sandbox_resources(pod, self._policy.of(throttled=not self.unthrottled(pod)))
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
        self,
        pod: Pod,
        kind: Kind,
        container: Json,
        materials: Materials,
        *,
        attempt: int,
        ips: tuple[str, ...],
        image: ImageFacts,
        image_ref: str,
        target_id: str = "",
        given: DeviceGrant = NO_DEVICES,
    ) -> Json:
        """See PodMaterials. `target_id`: the container id that an ephemeral container's targetContainerName has."""
        node = self._node()
        with _well_formed(pod):
            names.check_names(pod)
            context = security.container_context(
                pod, container, image, self._settings, target_id=target_id, extra_masked=node.thermal_throttle_paths
            )
            variables = await self._environment(pod, container, materials, ips, node)
            made = await self._mounts(pod, container, materials, variables, ips, node)
            blocks = mounts.plan_devices(pod, container, materials.volumes)
            return container_plan.container_config(
                pod,
                container,
                attempt=attempt,
                image_ref=image_ref,
                env=variables,
                mounts=made,
                resources=self.container_resources(pod, container),
                security_context=context,
                devices=blocks,
                given=given,
            )

    def container_resources(self, pod: Pod, container: Json) -> Json:
        """See PodMaterials."""
        return cgroups.container_resources(pod, container, self._policy, self._machine)

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
        self._let_go(uid)
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

    def _let_go(self, uid: str) -> None:
        self._objects.forget(uid)
        self._certificates.forget(uid)

    async def _objects_of(self, pod: Pod, wanted: volumes.Needs) -> dict[ObjectRef, Json | None]:
        refs = list(wanted.objects)
        found = await asyncio.gather(*(self._objects.object(pod, ref) for ref in refs))
        return dict(zip(refs, found, strict=True))

    async def _gather(self, pod: Pod) -> Gathered:
        wanted = volumes.needs(pod)
        tokens, claims = list(wanted.tokens), list(wanted.claims)
        certificates = list(wanted.certificates)
        found, texts, bound, bundles, credentials = await asyncio.gather(
            self._objects_of(pod, wanted),
            asyncio.gather(*(self._objects.token(pod, need) for need in tokens)),
            asyncio.gather(*(self._objects.claim(pod, name) for name in claims)),
            self._trust(pod, wanted.bundles),
            asyncio.gather(*(self._certificate(pod, need) for need in certificates)),
        )
        return Gathered(
            objects=found,
            tokens=dict(zip(tokens, texts, strict=True)),
            bundles=bundles,
            claims={name: volume for name, volume in zip(claims, bound, strict=True) if volume is not None},
            certificates=dict(zip(certificates, credentials, strict=True)),
        )

    async def _certificate(self, pod: Pod, need: CertificateNeed) -> Credential | NodewrightError:
        # A signer may never answer: the pod's other volumes must not wait for it.
        try:
            return await self._certificates.get(pod, need)
        except NodewrightError as error:
            return error

    async def _trust(self, pod: Pod, wanted: frozenset[TrustNeed]) -> dict[TrustNeed, bytes | None]:
        if not wanted:
            return {}
        bundles = await self._objects.trust_bundles(pod)
        return {need: trust.anchors(need, bundles) for need in wanted}

    async def _services(self, pod: Pod) -> Sequence[Json]:
        if pod.source != "api":
            try:
                return await self._objects.services()
            except Temporary:
                return ()  # a static pod must start without an API server
        return await self._objects.services()

    async def _dns(self, pod: Pod) -> dns.Dns:
        text = ""
        if self._settings.resolv_conf:
            text = await _blocking(pod, "DNS", lambda: self._disk.read_text(self._settings.resolv_conf))
        made = dns.pod_dns(pod, self._settings, dns.parse_resolv_conf(text), self._node().host_ips)
        self._warn_once(pod, made.warnings)
        return made

    async def _environment(
        self, pod: Pod, container: Json, materials: Materials, ips: tuple[str, ...], node: NodeContext
    ) -> dict[str, str]:
        refs = list(env.references(container))
        found = await asyncio.gather(*(self._objects.object(pod, ref) for ref in refs))
        files: dict[tuple[str, str], str] = {}
        for volume, path in env.file_references(container):
            mounted = materials.volumes.get(volume)
            if mounted is None:
                raise Permanent(
                    f'cannot find the volume "{volume}" referenced by FileKeyRef', obj=f"pod {pod.full_name}"
                )
            text = await _blocking(pod, f"file {path}", partial(self._disk.read_inside, mounted.path, path))
            if text is not None:
                files[volume, path] = text
        sources = env.EnvSources(dict(zip(refs, found, strict=True)), materials.services, ips, node, files)
        return env.environment(pod, container, sources)

    async def _mounts(
        self,
        pod: Pod,
        container: Json,
        materials: Materials,
        variables: dict[str, str],
        ips: tuple[str, ...],
        node: NodeContext,
    ) -> list[Json]:
        handler = str(pod.spec.get("runtimeClassName") or "")
        rro = handler in node.recursive_read_only_handlers
        plans = mounts.plan_mounts(pod, container, materials.volumes, variables, recursive_read_only=rro)
        return await _blocking(pod, "mounts", lambda: self._make_mounts(pod, container, plans, materials, ips))

    def _make_mounts(
        self, pod: Pod, container: Json, plans: Sequence[MountPlan], materials: Materials, ips: tuple[str, ...]
    ) -> list[Json]:
        paths = self.paths(pod.uid)
        name = container["name"]
        made = [container_plan.cri_mount(plan, self._sub_path(pod, name, plan, materials, paths)) for plan in plans]
        if not mounts.mounts_etc_hosts(container):
            node_hosts = self._disk.read_text(self._settings.hosts_file) if pod.host_network else ""
            text = hosts.hosts_file(pod, ips, self._settings.cluster_domain, node_hosts)
            if text is not None:
                self._disk.write_text(paths.etc_hosts, text, 0o644)
                made.append(container_plan.file_mount(mounts.ETC_HOSTS, paths.etc_hosts))
        target = container_plan.termination_path(container)
        if target:
            source = f"{paths.container(name)}/{secrets.token_hex(4)}"
            self._disk.make_directory(paths.container(name), 0o750)
            self._disk.write_text(source, "", 0o666)
            made.append(container_plan.file_mount(target, source))
        self._disk.make_directory(f"{sandbox.pod_log_directory(pod, self._settings)}/{name}", 0o755)
        return made

    def _sub_path(self, pod: Pod, container: str, plan: MountPlan, materials: Materials, paths: PodPaths) -> str:
        sub = plan.sub_path
        if sub is None:
            return ""
        target = paths.sub_path(sub.volume, container, sub.index)
        try:
            return self._disk.bind_sub_path(materials.volumes[sub.volume].path, sub.path, target)
        except (NodewrightError, OSError) as error:
            # The cause may name files of the host: it stays in the chained exception.
            raise Permanent(
                f'failed to prepare subPath for volumeMount "{sub.volume}" of container "{container}"',
                obj=f"pod {pod.full_name}",
                step=f"subPath {sub.path!r}",
                action="See that it is inside the volume and that links in it do not lead out of it.",
            ) from error

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


@contextmanager
def _well_formed(pod: Pod) -> Iterator[None]:
    """A manifest from a file has passed no validation: a field of a wrong type is the manifest's fault, said so."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Invalid(
            f"the pod's specification is malformed: {type(error).__name__}: {error}",
            obj=f"pod {pod.full_name}",
            action="Compare it with `kubectl explain pod.spec`.",
        ) from error


async def _blocking(pod: Pod, step: str, work: Callable[[], _T]) -> _T:
    try:
        return await alone(work)
    except OSError as error:
        raise Temporary(
            str(error), obj=f"pod {pod.full_name}", step=step, action="See the node's disk; it is tried again."
        ) from error
