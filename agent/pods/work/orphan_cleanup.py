"""Removes what dead pods left on the node: directories, cgroups, logs (upstream: HandlePodCleanups)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from agent.pods.work.deps import PodDeps
from nodelib.errors import NodewrightError

log = logging.getLogger(__name__)

_MOST_LOGS = 200  # pods whose logs are removed in one sweep


async def remove(deps: PodDeps, is_known: Callable[[str], bool]) -> None:
    """Clean up after all pods but those whose UID `is_known`, which is asked anew for each: pods come while this runs.

    Raises NodewrightError if the node cannot be searched.
    """
    for uid in {*await deps.resources.volumes.pods_on_disk(), *await deps.resources.cgroups.pod_uids()}:
        if not is_known(uid) and not deps.observer.is_unclear(uid):
            log.info("pod %s: removing the directory or cgroup it left behind", uid)
            resources = deps.resources
            await _clear(
                uid, resources.volumes.release, resources.cgroups.remove_pod, resources.user_namespaces.release
            )
    # Logs are removed last: an agent that was killed just before that has left them. Not too many at a time: a pod that
    # may write to /var/log makes any number of folders there, and the next sweep comes after this one.
    left = _MOST_LOGS
    for uid in await deps.containers.files.logged_pods():
        if left and not is_known(uid) and uid not in deps.observer.uids():
            left -= 1
            log.info("pod %s: removing the logs it left behind", uid)
            await _clear(uid, deps.containers.files.remove_left_logs)


async def _clear(uid: str, *removals: Callable[[str], Awaitable[None]]) -> None:
    """Clean up after one pod. A failure is logged and tried again at the next sweep; it does not stop the others."""
    try:
        for remove_one in removals:
            await remove_one(uid)
    except NodewrightError as error:
        log.warning("pod %s: removing what it left behind: %s", uid, error)
    except Exception:
        log.exception("pod %s: removing what it left behind failed; the other pods are cleaned up all the same", uid)
