"""What the volume manager and the container configurations use, in memory: API objects, certificates, disk, CSI."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from agent.common.model.pod_settings import PodPaths
from agent.common.model.pods import Pod
from agent.volumes.model.csi import CsiVolume
from agent.volumes.model.local import LocalVolume
from agent.volumes.model.sources import SECRET, CertificateProjection, Credential, FoundClaim, ObjectRef, TokenRequest
from agent.volumes.model.volumes import DiskVolume, EmptyDir, HostPath, ImageVolume, MountedVolume
from nodelib.errors import Temporary
from nodelib.json_values import Json


class FakeObjects:
    """`found` by ObjectRef: one that is missing does not exist. `down`: the API server does not answer."""

    def __init__(self) -> None:
        self.found: dict[ObjectRef, Json] = {}
        self.claims: dict[str, FoundClaim] = {}
        self.bundles: list[Json] = []
        self.all_services: list[Json] = []
        self.down = False
        self.dropped: list[str] = []

    async def object(self, pod: Pod, ref: ObjectRef) -> Json | None:
        self._check()
        return self.found.get(ref)

    async def secret(self, pod: Pod, name: str) -> Json | None:
        return await self.object(pod, ObjectRef(SECRET, name))

    async def token(self, pod: Pod, request: TokenRequest) -> str:
        self._check()
        return f"token for {request.audience or 'api'}"

    async def trust_bundles(self, pod: Pod) -> Sequence[Json]:
        self._check()
        return self.bundles

    async def claim(self, pod: Pod, name: str) -> FoundClaim | None:
        self._check()
        return self.claims.get(name)

    async def services(self) -> Sequence[Json]:
        self._check()
        return self.all_services

    def drop_pod(self, uid: str) -> None:
        self.dropped.append(uid)

    def _check(self) -> None:
        if self.down:
            raise Temporary("no answer")


class FakeCertificates:
    """`issued` by volume name: one that is missing waits for its signer."""

    def __init__(self) -> None:
        self.issued: dict[str, Credential] = {}
        self.dropped: list[str] = []

    async def get(self, pod: Pod, source: CertificateProjection) -> Credential:
        if source.volume not in self.issued:
            raise Temporary("credential bundle is not issued yet")
        return self.issued[source.volume]

    def drop_pod(self, uid: str) -> None:
        self.dropped.append(uid)


class FakeDisk:
    """Volumes by pod UID and the text of files by path; the volumes of a pod in `busy` cannot be unmounted.

    `peers`: sub paths that stay in the peer groups of their volume.
    """

    def __init__(self) -> None:
        self.busy: set[str] = set()
        self.volumes: dict[str, list[DiskVolume]] = {}
        self.bound: dict[str, tuple[str, str]] = {}
        self.peers: set[str] = set()
        self.sole: dict[str, str] = {}
        self.texts: dict[str, str] = {"/etc/hosts": "NODE\n", "/etc/resolv.conf": "nameserver 192.0.2.1\n"}
        self.directories: set[str] = set()
        self.refuse_sub_paths = False

    def set_up(self, paths: PodPaths, plans: list[DiskVolume]) -> dict[str, MountedVolume]:
        self.volumes[paths.uid] = plans
        made: dict[str, MountedVolume] = {}
        for plan in plans:
            match plan:
                case HostPath():
                    made[plan.name] = MountedVolume(plan.name, plan.path, plan.read_only)
                case ImageVolume():
                    made[plan.name] = MountedVolume(plan.name, "", True, image=plan.reference)
                case _:
                    made[plan.name] = MountedVolume(
                        plan.name, f"{paths.volumes}/{plan.name}", not isinstance(plan, EmptyDir)
                    )
        return made

    def update(self, paths: PodPaths, plans: list[DiskVolume]) -> list[str]:
        before = {plan.name: plan for plan in self.volumes.get(paths.uid, [])}
        self.volumes[paths.uid] = list((before | {plan.name: plan for plan in plans}).values())
        return [plan.name for plan in plans if before.get(plan.name) != plan]

    def reserve(self, paths: PodPaths, volume: str) -> str:
        holder = self.sole.setdefault(volume, paths.uid)
        return "" if holder == paths.uid else holder

    def bind_sub_path(self, volume: str, path: str, target: str, *, keeps_peers: bool = False) -> str:
        if self.refuse_sub_paths:
            raise OSError("secret detail of the node")
        self.bound[target] = (volume, path)
        if keeps_peers:
            self.peers.add(target)
        return target

    def read_inside(self, volume: str, path: str) -> str | None:
        return self.texts.get(f"{volume}/{path}")

    def read_text(self, path: str) -> str:
        return self.texts[path]

    def write_text(self, path: str, text: str, mode: int) -> None:
        self.texts[path] = text

    def make_directory(self, path: str, mode: int) -> None:
        self.directories.add(path)

    def tear_down(self, paths: PodPaths) -> None:
        if paths.uid in self.busy:
            raise OSError(errno.EBUSY, "Device or resource busy", paths.pod)
        self.volumes.pop(paths.uid, None)
        self.sole = {volume: uid for volume, uid in self.sole.items() if uid != paths.uid}

    def pods(self) -> list[str]:
        return sorted(self.volumes)


class FakeCsi:
    """Records what was mounted, as (UID, volume name), and the UIDs whose volumes were released."""

    def __init__(self) -> None:
        self.mounted: list[tuple[str, str]] = []
        self.released: list[str] = []

    async def mount(self, pod: Pod, paths: PodPaths, volumes: list[CsiVolume]) -> dict[str, MountedVolume]:
        self.mounted += [(pod.uid, one.name) for one in volumes]
        return {
            one.name: MountedVolume(one.name, f"{paths.volumes}/csi/{one.name}", block=one.block) for one in volumes
        }

    async def release(self, paths: PodPaths) -> None:
        self.released.append(paths.uid)


class FakeLocal:
    """All local volumes but raw devices are directories. Records the UIDs whose volumes were released."""

    def __init__(self) -> None:
        self.released: list[str] = []

    async def mount(self, pod: Pod, paths: PodPaths, volumes: Sequence[LocalVolume]) -> list[HostPath]:
        kinds = {True: "BlockDevice", False: "Directory"}
        return [HostPath(one.name, one.path, kinds[one.block], one.read_only, block=one.block) for one in volumes]

    async def release(self, paths: PodPaths) -> None:
        self.released.append(paths.uid)
