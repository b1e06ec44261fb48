"""Remove a pod's directory: unmount what is mounted in it, then delete it, never through a mount.

People have lost data to `rm -rf` of a directory that something was still mounted in
(kubernetes issues 60987 and 134075): here nothing is removed while the mount table still
shows a mount below, and the removal never enters a mount or follows a link, however deep the tree.
"""

from __future__ import annotations

import os

from agent.common.model.pod_settings import PodPaths
from agent.volumes.edge import subpath
from nodelib import file_trees, mounts
from nodelib.errors import Temporary
from nodelib.mountinfo import Mount


def tear_down(paths: PodPaths) -> None:
    """Idempotent. Raises Temporary when something cannot be unmounted yet; no file is deleted then."""
    try:
        os.lstat(paths.pod)
    except FileNotFoundError:
        return
    _unmount_all(paths)
    left = mounts.mounts_below(paths.pod)
    if left:
        raise _still_mounted(paths, left[-1].path)
    try:
        file_trees.remove(paths.pod)
    except OSError as error:
        raise Temporary(
            f"the directory cannot be removed: {error}",
            obj=f"pod directory {paths.pod}",
            step="release",
            action="The agent tries again.",
            retry_after=2,
        ) from error


def pods_on_disk(root_dir: str) -> list[str]:
    """UIDs that have a directory."""
    try:
        return [entry.name for entry in os.scandir(f"{root_dir}/pods") if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []


def _unmount_all(paths: PodPaths) -> None:
    subpath.unbind_all(paths.sub_paths)
    left = mounts.mounts_below(paths.pod)
    tops = _tops(left)
    for top in tops:
        # A pod may have bound a tree of the host into its volume.
        mounts.seal(top)
    for found in reversed(left):
        try:
            mounts.unmount(found.path)
        except mounts.MountError as error:
            raise _still_mounted(paths, found.path) from error
        if found.path in tops:
            mounts.seal(found.path)  # another one may have been below it


def _tops(found: list[Mount]) -> set[str]:
    """Mount points that are in no other of these."""
    tops: set[str] = set()
    last = "\0"
    for path in sorted(f"{one.path}/" for one in found):
        if not path.startswith(last):
            last = path
            tops.add(path[:-1])
    return tops


def _still_mounted(paths: PodPaths, path: str) -> Temporary:
    return Temporary(
        f"{path} is still mounted",
        obj=f"pod directory {paths.pod}",
        step="release",
        action="The agent tries again; `findmnt` and `fuser -vm` on that path show what holds it.",
        retry_after=1,
    )
