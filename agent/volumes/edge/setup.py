"""Make the volumes that plan/volumes.py decided on. Idempotent: a volume that exists is kept or updated."""

from __future__ import annotations

import errno
import os
import stat
import time
from dataclasses import replace

from agent.common.model.pod_settings import PodPaths
from agent.volumes.edge import atomic
from agent.volumes.edge.ownership import apply_fs_group
from agent.volumes.model.volumes import AtomicVolume, DiskVolume, EmptyDir, HostPath, ImageVolume, MountedVolume
from nodelib import mounts
from nodelib.errors import NodewrightError, Permanent, Temporary

_EMPTY_DIR = "kubernetes.io~empty-dir"
_KINDS = {
    "Directory": (stat.S_ISDIR, "a directory"),
    "DirectoryOrCreate": (stat.S_ISDIR, "a directory"),
    "File": (stat.S_ISREG, "a file"),
    "FileOrCreate": (stat.S_ISREG, "a file"),
    "Socket": (stat.S_ISSOCK, "a socket"),
    "CharDevice": (stat.S_ISCHR, "a character device"),
    "BlockDevice": (stat.S_ISBLK, "a block device"),
}


def make_pod_directories(paths: PodPaths) -> None:
    for path in (paths.pod, paths.volumes, paths.plugins, f"{paths.pod}/containers"):
        make_directories(path)


def make_directories(path: str, mode: int = 0o750) -> None:
    """Like os.makedirs, but every directory that is made gets `mode`, whatever the umask."""
    missing: list[str] = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for made in reversed(missing):
        try:
            os.mkdir(made, mode)
            os.chmod(made, mode)
        except FileExistsError:
            continue


def set_up(paths: PodPaths, plans: list[DiskVolume]) -> dict[str, MountedVolume]:
    """Volumes by name. Raises Temporary or Permanent naming the volume; those made before stay."""
    made: dict[str, MountedVolume] = {}
    for plan in plans:
        began, started = time.time(), time.monotonic()
        try:
            made[plan.name] = replace(_set_up(paths, plan), began=began, took=time.monotonic() - started)
        except OSError as error:
            raise Temporary(
                f'MountVolume.SetUp failed for volume "{plan.name}" : {error}',
                obj=f"pod {paths.uid}",
                action="The agent tries again." if error.errno != errno.ENOSPC else "Free disk space on the node.",
            ) from error
        except NodewrightError as error:
            error.message = f'MountVolume.SetUp failed for volume "{plan.name}" : {error.message}'
            raise
    return made


def update(paths: PodPaths, plans: list[DiskVolume]) -> list[str]:
    """Write changes into volumes that are set up; returns the names of those that changed. Raises OSError.

    A volume that is not set up (any more) is left out: no secret may reach the disk below its tmpfs.
    """
    return [
        plan.name
        for plan in plans
        if isinstance(plan, AtomicVolume) and _is_set_up(paths, plan) and _write(paths, plan)
    ]


def _is_set_up(paths: PodPaths, plan: AtomicVolume) -> bool:
    directory = paths.volume(plan.plugin, plan.name)
    try:
        mounted = os.lstat(directory).st_dev != os.lstat(os.path.dirname(directory)).st_dev
    except FileNotFoundError:
        return False
    return mounted or not plan.in_memory


def _set_up(paths: PodPaths, plan: DiskVolume) -> MountedVolume:
    match plan:
        case EmptyDir():
            return MountedVolume(plan.name, _empty_dir(paths.volume(_EMPTY_DIR, plan.name), plan), relabels=True)
        case AtomicVolume():
            directory = paths.volume(plan.plugin, plan.name)
            _directory(directory, 0o777)
            if plan.in_memory:
                _tmpfs(directory, plan.size)
            for nested in plan.nested:
                _nested(directory, nested)
            _write(paths, plan)
            return MountedVolume(plan.name, directory, read_only=True, relabels=True)
        case HostPath():
            _check_host_path(plan)
            if plan.fs_group is not None and not plan.read_only:
                _give_to_group(paths, plan, plan.fs_group)
            return MountedVolume(
                plan.name, plan.path, read_only=plan.read_only, block=plan.block, relabels=plan.relabels
            )
        case ImageVolume():
            return MountedVolume(plan.name, "", read_only=True, image=plan.reference)


def _empty_dir(directory: str, plan: EmptyDir) -> str:
    existed = os.path.isdir(directory)
    _directory(directory, 0o777)
    if plan.medium == "Memory":
        existed = not _tmpfs(directory, plan.size)
    elif plan.medium == "HugePages" and mounts.mount_at(directory) is None:
        mounts.mount("nodev", directory, "hugetlbfs", data=f"pagesize={plan.page_size}")
        existed = False
    if plan.mode is not None and not existed:
        os.chmod(directory, plan.mode & 0o1777)
    if plan.fs_group is not None and not existed:
        apply_fs_group(directory, plan.fs_group, read_only=False)
    return directory


def _directory(path: str, mode: int) -> None:
    make_directories(os.path.dirname(path))
    try:
        os.mkdir(path, mode)
        os.chmod(path, mode)
    except FileExistsError:
        return


def _tmpfs(directory: str, size: int) -> bool:
    """Mount a tmpfs; False when it is mounted already. `noswap` (Linux 6.4) keeps secrets out of swap."""
    if os.lstat(directory).st_dev != os.lstat(os.path.dirname(directory)).st_dev:
        return False
    options = [f"size={size}"] if size else []
    try:
        mounts.mount("tmpfs", directory, "tmpfs", data=",".join([*options, "noswap"]))
    except mounts.MountError as error:
        if error.errno not in (errno.EINVAL, errno.EPERM):
            raise
        mounts.mount("tmpfs", directory, "tmpfs", data=",".join(options))
    return True


def _nested(directory: str, relative: str) -> None:
    """Make a directory on which another volume is mounted; if the pod puts a file there, the file stays."""
    path = os.path.join(directory, relative)
    if os.path.lexists(path):
        return
    make_directories(path, 0o755)


def _write(paths: PodPaths, plan: AtomicVolume) -> bool:
    directory = paths.volume(plan.plugin, plan.name)
    group = plan.fs_group
    if group is None:
        return atomic.write(directory, plan.files)
    return atomic.write(directory, plan.files, lambda: apply_fs_group(directory, group, read_only=True))


def _give_to_group(paths: PodPaths, plan: HostPath, group: int) -> None:
    """Done once for a pod, even across restarts of the agent: the walk may take long."""
    marker = f"{paths.plugins}/fsgroup-{plan.name}"
    if not os.path.exists(marker):
        apply_fs_group(plan.path, group, read_only=False, policy=plan.fs_group_policy)
        os.close(os.open(marker, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))


def _check_host_path(plan: HostPath) -> None:
    if plan.type == "":
        return
    try:
        mode = os.stat(plan.path).st_mode
    except FileNotFoundError:
        mode = _create(plan)
    check, wanted = _KINDS[plan.type]
    if not check(mode):
        raise _host_path_error(plan, f"hostPath type check failed: {plan.path} is not {wanted}")


def _create(plan: HostPath) -> int:
    if plan.type == "DirectoryOrCreate":
        os.makedirs(plan.path, mode=0o755, exist_ok=True)
    elif plan.type == "FileOrCreate":
        try:
            os.close(os.open(plan.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
        except FileNotFoundError as error:
            raise _host_path_error(plan, f"the directory of {plan.path} does not exist") from error
    else:
        raise _host_path_error(plan, f"hostPath type check failed: {plan.path} is not {_KINDS[plan.type][1]}")
    return os.stat(plan.path).st_mode


def _host_path_error(plan: HostPath, message: str) -> Permanent:
    return Permanent(message, action=f"Make it on the node, or change the volume's type (now {plan.type}).")
