"""What the logs of running containers take on disk, looked at when it is scraped; upstream's name and labels."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from itertools import islice

from prometheus_client.core import GaugeMetricFamily, Metric

from agent.common.model.pods import Pod

_MOST = 1000  # files of one container that are counted: a pod may have its folder mounted, and make millions
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class LogSizes:
    """A collector in the sense of prometheus_client; it is called in a thread.

    `folder`: of all pods' logs; `running()`: each running container's pod, and its name.
    """

    def __init__(self, folder: str, running: Callable[[], Iterable[tuple[Pod, str]]]) -> None:
        self._folder, self._running = folder, running

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily(
            "kubelet_container_log_filesystem_used_bytes",
            "Bytes used by the container's logs on the filesystem.",
            labels=["uid", "namespace", "pod", "container"],
        )
        for uid, namespace, name, container in dict.fromkeys(
            (pod.uid, pod.namespace, pod.name, container) for pod, container in self._running()
        ):
            used = _used(f"{self._folder}/{namespace}_{name}_{uid}", container)
            if used is not None:
                family.add_metric([uid, namespace, name, container], used)
        yield family


def _used(of_pod: str, container: str) -> int | None:
    """As du counts; None when there is no such folder. No link is followed, which may lead to a server that is gone."""
    try:
        above = os.open(of_pod, _FOLDER)
        try:
            handle = os.open(container, _FOLDER, dir_fd=above)
        finally:
            os.close(above)
    except OSError:
        return None
    try:
        with os.scandir(handle) as entries:
            return os.fstat(handle).st_blocks * 512 + sum(map(_size, islice(entries, _MOST)))
    except OSError:
        return None
    finally:
        os.close(handle)


def _size(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_blocks * 512
    except OSError:  # it was rotated meanwhile
        return 0
