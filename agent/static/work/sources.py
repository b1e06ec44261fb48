"""The two sources of static pods: a directory (or file) of manifests, and a URL.

Level-triggered: everything is read after any change and every fileCheckFrequency. A manifest that cannot be used is
reported once, with its file and cause; its pod keeps running until the manifest can be read again or is removed
(upstream ends such a pod at its next periodic read).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from agent.common.model.pods import Pod
from agent.static.model import ManifestFile
from agent.static.plan.manifest import Manifest, Origin, decode
from agent.static.work.static_pods import StaticPods
from nodelib.clock import Clock, rest_after
from nodelib.errors import Invalid, NodewrightError
from nodelib.kube.times import format_rfc3339

# After each look at the manifests a pause of so many times as long, and of so many seconds at most: somebody may change
# them all the time.
_REST, _LONGEST_REST = 3, 10.0


class Folder(Protocol):
    """static/edge/manifests.py ManifestFolder."""

    @property
    def path(self) -> str: ...

    async def read(self) -> tuple[ManifestFile, ...] | None: ...


class Changes(Protocol):
    """static/edge/folder_watch.py FolderWatch."""

    def renew(self) -> None: ...

    async def wait(self, timeout: float) -> frozenset[str]: ...


class Url(Protocol):
    """static/edge/manifests.py ManifestUrl."""

    @property
    def url(self) -> str: ...

    async def read(self) -> bytes: ...


class ProblemReports:
    """Each problem is reported once while it lasts, and once when it is over, to `report(is_problem, text)`."""

    def __init__(self, report: Callable[[bool, str], None]) -> None:
        self._report = report
        self._open: dict[str, str] = {}

    def add(self, about: str, text: str, *, bad: bool = True) -> None:
        if self._open.get(about) != text:
            self._open[about] = text
            self._report(bad, text)

    def clear(self, about: str) -> None:
        if self._open.pop(about, None) is not None:
            self._report(False, f"manifest {about}: it can be used again")

    def keep(self, abouts: Iterable[str]) -> None:
        """Drop the problems about all others."""
        kept = set(abouts)
        self._open = {about: text for about, text in self._open.items() if about in kept}


@dataclass(frozen=True, slots=True)
class _Read:
    file: ManifestFile
    pods: tuple[Pod, ...]


class FileSource:
    """staticPodPath. `period` (fileCheckFrequency) in seconds."""

    def __init__(
        self,
        folder: Folder,
        changes: Changes,
        pods: StaticPods,
        problems: ProblemReports,
        clock: Clock,
        *,
        node_name: str,
        period: float,
    ) -> None:
        self._folder, self._changes, self._pods, self._problems = folder, changes, pods, problems
        self._clock, self._node_name, self._period = clock, node_name, period
        self._known: dict[str, _Read] = {}

    async def run(self) -> None:
        """Until cancelled."""
        deleted: frozenset[str] = frozenset()
        while True:
            self._changes.renew()
            began = self._clock.monotonic()
            await self.refresh(deleted)
            await rest_after(self._clock, began, _REST, _LONGEST_REST)
            deleted = await self._changes.wait(self._period)

    async def refresh(self, deleted: frozenset[str] = frozenset()) -> None:
        """Read everything again. `deleted`: names that did not exist for a moment, so their pods start anew."""
        try:
            files = await self._folder.read()
        except NodewrightError as error:
            self._problems.add(self._folder.path, str(error))
            return
        if files is None:
            # Normal before `kubeadm init` has written the first one.
            text = f"static pod path {self._folder.path} does not exist: no pods are run from it"
            self._problems.add(self._folder.path, text, bad=False)
        else:
            self._problems.clear(self._folder.path)
        before, self._known = self._known, {}
        for file in files or ():
            self._known[file.path] = await self._decode(file, before.get(file.path))
        again = {path for path in self._known if path in before and os.path.basename(path) in deleted}
        if again:
            self._pods.replace("file", self._unique(path for path in self._known if path not in again))
        self._pods.replace("file", self._unique(self._known))
        self._problems.keep([*self._known, self._folder.path])

    async def _decode(self, file: ManifestFile, before: _Read | None) -> _Read:
        if before is not None and before.file is file:
            return before
        pods = before.pods if before is not None else ()
        if file.problem:
            self._problems.add(file.path, f"manifest {file.path}: {file.problem}: no pod is run from it")
            return _Read(file, pods)
        try:
            found = await _decoded(file.data, Origin("file", file.path, self._node_name), self._clock, pods)
        except Invalid as error:
            self._problems.add(file.path, str(error))
            return _Read(file, pods)
        self._problems.clear(file.path)
        for warning in found.warnings:
            self._problems.add(file.path, warning)
        return _Read(file, found.pods)

    def _unique(self, paths: Iterable[str]) -> list[Pod]:
        """Of several manifests of one pod or UID, the one that is running already, or else the first by name."""
        found = [(path, pod) for path in paths for pod in self._known[path].pods]
        found = self._one_of_each(found, lambda pod: pod.full_name, "is also in {}, from which it is run")
        found = self._one_of_each(found, lambda pod: pod.uid, "has the UID of the one in {}, which is run")
        return [pod for _, pod in found]

    def _one_of_each(
        self, listed: Iterable[tuple[str, Pod]], key: Callable[[Pod], str], words: str
    ) -> list[tuple[str, Pod]]:
        wanted = self._pods.wanted_by("file")
        found: dict[str, tuple[str, Pod]] = {}
        for path, pod in listed:
            if key(pod) not in found:
                found[key(pod)] = path, pod
                continue
            one, other = (path, pod), found[key(pod)]
            runs = pod.full_name in wanted and wanted[pod.full_name].uid == pod.uid
            used, left = (one, other) if runs else (other, one)
            text = f"manifest {left[0]}: pod {left[1].full_name} {words.format(used[0])}. Remove one of the two."
            self._problems.add(left[0], text)
            found[key(pod)] = used
        return list(found.values())


class UrlSource:
    """staticPodURL. `period` (httpCheckFrequency) in seconds."""

    def __init__(
        self, url: Url, pods: StaticPods, problems: ProblemReports, clock: Clock, *, node_name: str, period: float
    ) -> None:
        self._url, self._pods, self._problems, self._clock = url, pods, problems, clock
        self._origin, self._period = Origin("http", url.url, node_name), period
        self._data: bytes | None = None
        self._last: tuple[Pod, ...] = ()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.refresh()
            await self._clock.sleep(self._period)

    async def refresh(self) -> None:
        """Request it once. No answer, or one that cannot be used, changes nothing."""
        try:
            data = await self._url.read()
            if data == self._data:
                return
            found = await _decoded(data, self._origin, self._clock, self._last)
        except NodewrightError as error:
            self._problems.add(self._url.url, str(error))
            return
        self._problems.clear(self._url.url)
        for warning in found.warnings:
            self._problems.add(self._url.url, warning)
        self._data, self._last = data, found.pods
        self._pods.replace("http", found.pods)


async def _decoded(data: bytes, origin: Origin, clock: Clock, before: tuple[Pod, ...]) -> Manifest:
    """A pod that is the same as before stays the identical value. Raises Invalid."""
    # In a thread: a manifest within its limits may still take a second.
    found = await asyncio.to_thread(decode, data, origin, format_rfc3339(clock.now()))
    known = {pod.uid: pod for pod in before}
    return Manifest(tuple(known.get(pod.uid, pod) for pod in found.pods), found.warnings)
