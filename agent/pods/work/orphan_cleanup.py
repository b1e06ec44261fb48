"""What pods that have no worker left on the node: directories, cgroups, logs."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Container

from agent.pods.work.deps import PodDeps
from nodelib.errors import NodewrightError

log = logging.getLogger(__name__)


async def remove(deps: PodDeps, known: Container[str]) -> None:
    """Of all pods but those `known` by UID. Raises NodewrightError: it cannot be looked for."""
    for uid in {*await deps.resources.volumes.pods_on_disk(), *await deps.resources.cgroups.pod_uids()}:
        if uid not in known:
            log.info("pod %s: removing the directory or cgroup that it left behind", uid)
            await _clear(uid, deps.resources.volumes.release, deps.resources.cgroups.remove_pod)
    # Logs outlive all else of a pod: an agent that was killed in its last step has left them.
    for uid in await deps.containers.files.logged_pods():
        if uid not in known and uid not in deps.observer.uids():
            log.info("pod %s: removing the logs that it left behind", uid)
            await _clear(uid, deps.containers.files.remove_left_logs)


async def _clear(uid: str, *removals: Callable[[str], Awaitable[None]]) -> None:
    """What one pod left; when it cannot be removed, the others' still is, and this one's at the next sweep."""
    try:
        for remove_one in removals:
            await remove_one(uid)
    except NodewrightError as error:
        log.warning("pod %s: removing what it left behind: %s", uid, error)
