"""CSI volumes on disk: the directories that drivers mount into, and their vol_data.json files.

The layout is upstream's (pkg/volume/csi): pods/UID/volumes/kubernetes.io~csi/NAME/{mount,vol_data.json} and
plugins/kubernetes.io/csi/DRIVER/HASH/{globalmount,vol_data.json}. Blocking calls, short ones.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator, Mapping

from agent.common.model.pod_settings import PodPaths
from agent.volumes.edge import subpath
from agent.volumes.edge.ownership import apply_fs_group
from agent.volumes.edge.setup import make_directories
from agent.volumes.model.csi import Published, Staged, VolumeKey
from nodelib import files, mounts
from nodelib.json_values import decode

_DATA = "vol_data.json"
_MOST = 1 << 20  # bytes of one; a driver's id of a volume has 128 (CSI specification)
_FILESYSTEM, _BLOCK = "volumes/kubernetes.io~csi", "volumeDevices/kubernetes.io~csi"


class CsiDisk:
    """Every method raises OSError."""

    def __init__(self, root_dir: str) -> None:
        self._root_dir = root_dir

    def save(self, folder: str, data: Mapping[str, str]) -> None:
        """Write vol_data.json atomically and durably: after a power failure it alone names the driver to ask."""
        path, text = f"{folder}/{_DATA}", json.dumps(dict(data))
        if len(text) > _MOST:
            raise OSError(errno.EFBIG, f"it would have {len(text)} bytes, of which {_MOST} could be read again", path)
        make_directories(folder)
        files.replace(path, text, durable=True)

    def make(self, path: str) -> None:
        make_directories(path)

    def is_mounted(self, path: str) -> bool:
        return mounts.mount_at(path) is not None

    def takes_labels(self, path: str) -> bool:
        """Whether files of the mount can have SELinux contexts of their own (GetSELinuxSupport of hostutil)."""
        found = mounts.mount_at(path)
        return found is not None and "seclabel" in found.options.split(",")

    def apply_fs_group(self, path: str, group: int, policy: str) -> None:
        apply_fs_group(path, group, read_only=False, policy=policy)

    def published(self, paths: PodPaths) -> list[Published]:
        """The volumes in a pod's directory; those without a usable vol_data.json are left out."""
        return [*self._published(paths.pod, _FILESYSTEM), *self._published(paths.pod, _BLOCK, block=True)]

    def all_published(self) -> dict[str, list[Published]]:
        """By pod UID."""
        pods = f"{self._root_dir}/pods"
        return {uid: self.published(PodPaths(self._root_dir, uid)) for uid in _names(pods)}

    def all_staged(self) -> list[Staged]:
        base = f"{self._root_dir}/plugins/kubernetes.io/csi"
        found = [self._staged(f"{base}/{driver}/{name}", "globalmount") for driver, name in _pairs(base)]
        blocks = f"{base}/volumeDevices"
        found += [self._staged(f"{blocks}/{name}", "staging") for name in _names(blocks)]
        return [one for one in found if one is not None]

    def unbind_sub_paths(self, paths: PodPaths) -> None:
        """Unmount the pod's sub paths, which keep their volumes in use."""
        subpath.unbind_all(paths.sub_paths)

    def remove(self, folder: str, mount: str) -> None:
        """Remove the `folder` of a volume that its driver has unmounted. Raises OSError when `mount` holds files."""
        if self.is_mounted(mount):
            mounts.unmount(mount)
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(mount)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{folder}/{_DATA}")
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(folder)

    def _published(self, pod: str, below: str, *, block: bool = False) -> Iterator[Published]:
        for name in _names(f"{pod}/{below}"):
            folder = f"{pod}/{below}/{name}"
            data = _read(folder)
            if data.get("driverName") and data.get("volumeHandle"):
                key = VolumeKey(data["driverName"], data["volumeHandle"])
                ephemeral = data.get("volumeLifecycleMode") == "Ephemeral"
                spec_name = data.get("specVolID") or name
                target = f"{folder}/{'device' if block else 'mount'}"
                yield Published(key, spec_name, target, ephemeral, block, _context(data))

    def _staged(self, folder: str, below: str) -> Staged | None:
        data = _read(folder)
        if not (data.get("driverName") and data.get("volumeHandle")):
            return None
        return Staged(VolumeKey(data["driverName"], data["volumeHandle"]), f"{folder}/{below}", _context(data))


def _context(data: Mapping[str, str]) -> str:
    return data.get("seLinuxMountContext", "")


def _read(folder: str) -> dict[str, str]:
    try:
        found = decode(files.bytes_of(f"{folder}/{_DATA}", _MOST, seconds=0))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return {}
    except OSError as error:
        if error.errno not in files.NO_FILE:  # a CSI plugin has the folder: it is no record of a volume
            raise
        return {}
    values = found.items() if isinstance(found, dict) else ()
    return {name: value for name, value in values if isinstance(value, str)}


def _names(folder: str) -> list[str]:
    try:
        return sorted(entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _pairs(base: str) -> Iterator[tuple[str, str]]:
    for driver in _names(base):
        if driver != "volumeDevices":
            for name in _names(f"{base}/{driver}"):
                yield driver, name
