"""A CSI driver, its API objects and the disk under it, in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agent.common.model.errors import PluginError
from agent.common.model.pod_settings import PodPaths
from agent.common.model.pods import Pod
from agent.common.work.observable import Signal
from agent.volumes.model.csi import DriverFacts, Published, SecretRef, Staged, VolumeKey
from agent.volumes.model.sources import TokenRequest
from agent.volumes.plan.csi import attaches
from agent.volumes.work.csi_drivers import CsiDrivers
from agent.volumes.work.csi_grower import CsiGrower
from agent.volumes.work.expansion import Expansion
from nodelib.json_values import Json
from tests.fakes.claims import FakeClaimApi
from tests.fakes.clock import FakeClock


class FakeDriver:
    """`calls` names what it was asked; `fail` maps a call to the gRPC code that it fails with.

    `flags`: the mount flags that a call was given last.
    """

    def __init__(self, disk: FakeCsiDisk, facts: DriverFacts) -> None:
        self.calls: list[str] = []
        self.flags: dict[str, list[str]] = {}
        self.fail: dict[str, str] = {}
        self.max_volumes = facts.max_volumes
        self._disk, self._facts = disk, facts

    async def facts(self) -> DriverFacts:
        self._asked("facts")
        return replace(self._facts, max_volumes=self.max_volumes)

    async def stage(self, request: Json) -> None:
        self._asked("stage")
        self.flags["stage"] = _flags(request)
        self._disk.mounted.add(request["staging_target_path"])

    async def unstage(self, handle: str, path: str) -> None:
        self._asked("unstage")
        self._disk.mounted.discard(path)

    async def publish(self, request: Json) -> None:
        self._asked("publish")
        self.flags["publish"] = _flags(request)
        self._disk.mounted.add(request["target_path"])

    async def unpublish(self, handle: str, target: str) -> None:
        self._asked("unpublish")
        self._disk.mounted.discard(target)

    async def expand(self, request: Json) -> int:
        self._asked("expand")
        return int(request["capacity_range"]["required_bytes"])

    async def usage(self, handle: str, path: str) -> list[Json]:
        return []

    async def close(self) -> None:
        return None

    def _asked(self, call: str) -> None:
        self.calls.append(call)
        if call in self.fail:
            raise PluginError("as the test asked for", code=self.fail[call], obj="drv", step=call)


class FakeCsiApi:
    """`drivers`, `attachments` and `secrets` by name; the Node and its CSINode as last written."""

    def __init__(self) -> None:
        self.drivers: dict[str, Json] = {}
        self.attachments: dict[str, Json] = {}
        self.secrets: dict[str, dict[str, str]] = {}
        self.the_node: Json = {"metadata": {"name": "n", "uid": "u"}}
        self.the_csi_node: Json | None = None
        self.drivers_changed = Signal()

    async def driver(self, name: str) -> Json | None:
        return self.drivers.get(name)

    def attaches(self, name: str) -> bool:
        return attaches(self.drivers.get(name))

    async def attachment(self, name: str) -> Json | None:
        return self.attachments.get(name)

    async def secret(self, ref: SecretRef) -> Mapping[str, str]:
        return self.secrets[ref.name]

    async def token(self, pod: Pod, request: TokenRequest) -> Json:
        return {"token": "t"}

    def drop_pod(self, uid: str) -> None:
        return None

    async def node(self) -> Json:
        return self.the_node

    async def patch_node(self, patch: Json) -> None:
        self.the_node["metadata"] |= patch["metadata"]

    async def csi_node(self) -> Json | None:
        return self.the_csi_node

    async def write_csi_node(self, wanted: Json) -> None:
        self.the_csi_node = wanted


class NoEvents:
    """For those who look at none."""

    def emit(self, *args: object, **more: object) -> None: ...


def no_growth(drivers: CsiDrivers, api: FakeCsiApi) -> CsiGrower:
    """For volumes that have the size of their claims."""
    return CsiGrower(drivers, api, Expansion(FakeClaimApi(), NoEvents(), FakeClock()))


class FakeCsiDisk:
    """vol_data.json files by folder, and what is mounted. It outlives the CsiVolumes that write to it."""

    def __init__(self) -> None:
        self.files: dict[str, Mapping[str, str]] = {}
        self.mounted: set[str] = set()
        self.groups: dict[str, int] = {}
        self.labels = True

    def save(self, folder: str, data: Mapping[str, str]) -> None:
        self.files[folder] = dict(data)

    def make(self, path: str) -> None:
        return None

    def is_mounted(self, path: str) -> bool:
        return path in self.mounted

    def takes_labels(self, path: str) -> bool:
        return self.labels

    def apply_fs_group(self, path: str, group: int, policy: str) -> None:
        self.groups[path] = group

    def published(self, paths: PodPaths) -> list[Published]:
        found = [(folder, data) for folder, data in list(self.files.items()) if folder.startswith(f"{paths.pod}/")]
        return [
            Published(
                _key(data),
                data["specVolID"],
                f"{folder}/mount",
                data["volumeLifecycleMode"] == "Ephemeral",
                context=data.get("seLinuxMountContext", ""),
            )
            for folder, data in found
        ]

    def all_published(self) -> dict[str, list[Published]]:
        uids = {folder.split("/pods/")[1].split("/")[0] for folder in list(self.files) if "/pods/" in folder}
        return {uid: self.published(PodPaths("/k", uid)) for uid in uids}

    def all_staged(self) -> list[Staged]:
        return [
            Staged(_key(data), f"{folder}/globalmount", data.get("seLinuxMountContext", ""))
            for folder, data in list(self.files.items())
            if "/pods/" not in folder
        ]

    def unbind_sub_paths(self, paths: PodPaths) -> None:
        return None

    def remove(self, folder: str, mount: str) -> None:
        if mount in self.mounted:
            raise OSError(f"{mount} is still mounted")
        self.files.pop(folder, None)


def _flags(request: Json) -> list[str]:
    return list(request["volume_capability"].get("mount", {}).get("mount_flags", []))


def _key(data: Mapping[str, str]) -> VolumeKey:
    return VolumeKey(data["driverName"], data["volumeHandle"])
