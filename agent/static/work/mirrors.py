"""Keeps one mirror pod in the API for each static pod of this node (pkg/kubelet/pod/mirror_client.go)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeGuard

from agent.common.model.pods import Pod
from agent.common.ports import Events
from agent.pods.plan import mirrors as plan
from agent.pods.plan.mirrors import CreateMirror, DeleteMirror, MirrorStep
from nodelib.clock import Clock
from nodelib.errors import NodewrightError, Temporary
from nodelib.json_values import Json
from nodelib.kube.client import ApiError
from nodelib.runner import BoundedFrequencyRunner

log = logging.getLogger(__name__)

_AUDIT = 60.0  # seconds
_RETRY = 2.0
_ORPHANS_AT_ONCE = 20  # between two looks at what static pods need


class MirrorApi(Protocol):
    """pods/edge/api_pods.py PodsApi. Every call raises ApiError or ApiUnreachable."""

    async def create(self, body: Json) -> Json: ...

    async def delete(self, pod: Pod) -> None: ...


class StaticView(Protocol):
    """static/work/static_pods.py StaticPods."""

    def wanted(self) -> Mapping[str, Pod]: ...

    def terminating(self) -> frozenset[str]: ...

    def follow(self, on_change: Callable[[], None]) -> None: ...


@dataclass(frozen=True, slots=True)
class MirrorHooks:
    """`node_uid()`: "" while there is no Node, and then no mirror is created. `all_known()`: every source has listed
    its pods. `changed(uid)`: the mirror of this static pod has changed; `removed(uid)`: this mirror is gone.
    """

    node_uid: Callable[[], str]
    all_known: Callable[[], bool]
    changed: Callable[[str], None]
    removed: Callable[[str], None]


class MirrorPods:
    """The mirror pods of this node as the API shows them, by full name. Created before what asks for them."""

    def __init__(self) -> None:
        self.shown: dict[str, Pod] = {}

    def of(self, pod: Pod) -> Pod | None:
        """The mirror pod of this static pod, if the API has one."""
        mirror = self.shown.get(pod.full_name)
        return mirror if mirror is not None and not mirror.is_deleted and plan.mirrors(mirror, pod) else None


class MirrorPodManager:
    """Creates and deletes mirror pods. on_pod() takes every change of a mirror pod in the API."""

    def __init__(
        self,
        api: MirrorApi,
        mirrors: MirrorPods,
        static: StaticView,
        events: Events,
        clock: Clock,
        hooks: MirrorHooks,
    ) -> None:
        self._api, self._static, self._events, self._hooks = api, static, events, hooks
        self._shown = mirrors.shown
        self._synced = False
        self._refused: dict[str, str] = {}
        self._is_creating, self._ended = False, set[str]()  # UIDs of mirrors that went while the last one was made
        self._tried: set[str] = set()  # UIDs of orphans that were deleted, and may be there still
        self._runner = BoundedFrequencyRunner(
            "mirror pods", self.sync, min_interval=0.05, retry_interval=_RETRY, max_interval=_AUDIT, clock=clock
        )
        static.follow(self.poke)

    def on_pod(self, change: str, raw: Json, old: Json | None) -> None:
        """A change of a mirror pod in the API watch."""
        mirror = Pod(raw)
        known = self._shown.get(mirror.full_name)
        if known is not None and (change == "DELETED" or known.uid != mirror.uid):
            self._hooks.removed(known.uid)
        if change == "DELETED":
            if self._is_creating:
                self._ended.add(mirror.uid)
            if known is not None and known.uid == mirror.uid:
                del self._shown[mirror.full_name]
        else:
            self._shown[mirror.full_name] = mirror
        pod = self._static.wanted().get(mirror.full_name)
        if pod is not None:
            self._hooks.changed(pod.uid)
        self.poke()

    def api_synced(self) -> None:
        """The API has listed all pods of this node: a mirror that was not among them does not exist."""
        self._synced = True
        self.poke()

    def poke(self) -> None:
        """The static pods or their mirrors have changed."""
        self._runner.poke()

    async def run(self) -> None:
        """Until cancelled."""
        await self._runner.run()

    def translate(self, uid: str) -> str:
        """The static pod's UID for the UID of its mirror pod; any other UID unchanged."""
        for name, pod in self._static.wanted().items():
            mirror = self._shown.get(name)
            if mirror is not None and mirror.uid == uid:
                return pod.uid
        return uid

    async def sync(self) -> None:
        """Create and delete what differs; a failure does not stop the others. Raises Temporary to be called again."""
        if not self._synced or not self._hooks.node_uid():
            return
        wanted = self._static.wanted()
        todo = list(
            plan.steps(wanted, dict(self._shown), self._static.terminating(), all_known=self._hooks.all_known())
        )
        failed = ""
        for step in self._due(todo):
            try:
                await self._walk(step)
            except NodewrightError as error:
                failed = self._failed(step, error) or failed
        uids = {one.uid for one in wanted.values()}
        self._refused = {uid: text for uid, text in self._refused.items() if uid in uids}
        if failed:
            raise Temporary(failed)
        if any(_is_orphan(one) and not self._was_tried(one) for one in todo):
            self.poke()

    def _due(self, todo: list[MirrorStep]) -> list[MirrorStep]:
        """All but the orphans beyond the first few: whoever makes thousands must not keep static pods waiting."""
        orphans = [one for one in todo if _is_orphan(one)]
        others = [one for one in todo if not _is_orphan(one)]
        self._tried &= {one.mirror.uid for one in orphans}
        return [*others, *sorted(orphans, key=self._was_tried)[:_ORPHANS_AT_ONCE]]

    def _was_tried(self, step: DeleteMirror) -> bool:
        return step.mirror.uid in self._tried

    async def _walk(self, step: MirrorStep) -> None:
        if isinstance(step, DeleteMirror):
            log.info("mirror pod %s is deleted: %s", step.mirror.full_name, step.why)
            if step.orphan:
                self._tried.add(step.mirror.uid)
            await self._api.delete(step.mirror)
            return
        self._ended, self._is_creating = set(), True
        try:
            created = await self._api.create(plan.mirror_object(step.pod, self._hooks.node_uid()))
        finally:
            self._is_creating = False
        self._refused.pop(step.pod.uid, None)
        # It may be gone already, and no event will say so again.
        if step.pod.full_name not in self._shown and created["metadata"]["uid"] not in self._ended:
            self.on_pod("ADDED", created, None)

    def _failed(self, step: MirrorStep, error: NodewrightError) -> str:
        """The error in words. A failed creation makes an Event, but not the same one twice."""
        if isinstance(step, DeleteMirror):
            return str(error)
        if isinstance(error, ApiError) and error.is_already_exists:
            # The watch is late, or the name belongs to a pod that is not a mirror.
            error = ApiError(error.code, error.reason, "a pod of that name is there already", obj=error.obj)
        text = f"mirror pod of {step.pod.full_name} is not created: {error}"
        if isinstance(step, CreateMirror) and self._refused.get(step.pod.uid) != text:
            self._refused[step.pod.uid] = text
            self._events.emit(step.pod.raw, "Warning", "FailedCreateMirrorPod", text)
        return text


def _is_orphan(step: MirrorStep) -> TypeGuard[DeleteMirror]:
    return isinstance(step, DeleteMirror) and step.orphan
