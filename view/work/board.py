"""The rows that the page shows, brought up to date as objects change, and the browsers that are told.

Changes are folded: what changes within a moment is one message, a row that stays the same is none (a Node's heartbeat
changes its object every few seconds, and no row).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from nodelib.clock import Clock
from nodelib.json_values import Json, object_or_empty
from view.model.network import Applied
from view.model.objects import (
    CLUSTER_POLICY,
    CUSTOM_PATHS,
    NAMESPACE,
    NODE,
    PATHS,
    POD,
    POLICY,
    SERVICE,
    SHOWN,
    SLICE,
    Key,
    Look,
    Row,
    row_key,
)
from view.plan import rows, texts

_FOLD = 0.05  # seconds in which changes are collected
_BREATH = 0.01  # seconds of work after which the event loop may serve others; a pod of many policies takes longer
_PATIENCE = 1.0  # seconds after which browsers get the rows that are made, while others are still to be made
# Which policies apply to a pod: of those of its namespace, of those of the cluster; and its namespace.
AppliedTo = Callable[[Json, Iterable[Json], Iterable[Json], Json | None], Sequence[Applied]]
_SERVICE_NAME = "kubernetes.io/service-name"


class Viewing(Protocol):
    """One browser, as the board knows it. Neither call may block."""

    def rows(self, changed: Mapping[str, Row | None]) -> None: ...

    def state(self, text: str) -> None: ...


class Board:
    """`stores` are the objects by kind. `changed()` and `on_state()` are called by the watches."""

    def __init__(self, clock: Clock, cluster: str, applied_to: AppliedTo = lambda *_: ()) -> None:
        self.stores: dict[str, dict[Key, Json]] = {kind: {} for kind in (*PATHS, *CUSTOM_PATHS)}
        self._clock, self._cluster, self._applied_to = clock, cluster, applied_to
        self._rows: dict[str, Row] = {}
        self._slices: dict[Key, dict[Key, Json]] = {}  # by Service
        self._counts: dict[Key, tuple[int, int]] = {}  # addresses of each slice
        self._policies: dict[str, dict[Key, Json]] = {}  # by namespace
        self._pods: Counter[str] = Counter()  # by node
        self._changed: set[tuple[str, Key]] = set()
        self._problems: dict[str, str] = {}
        self._unsynced = set(PATHS)
        self._notes: list[str] = []
        self._viewers: set[Viewing] = set()
        self._looks: dict[Look, set[Callable[[], None]]] = {}
        self._news = asyncio.Event()

    def changed(self, kind: str, key: Key, obj: Json | None) -> None:
        """`obj` None: it is gone."""
        store = self.stores[kind]
        old = store.pop(key, None)
        if obj is not None:
            store[key] = obj
        if kind == SLICE:
            self._move_slice(key, old, obj)
        else:
            self._touch(kind, key)
        if kind == POLICY:
            self._move_policy(key, obj)
        if kind == CLUSTER_POLICY:
            self._changed.update((POD, pod) for pod in self.stores[POD])
        if kind == NAMESPACE and self.stores[CLUSTER_POLICY] and _labels(old) != _labels(obj):
            self._touch_pods_of(key[1])
        if kind == POD:
            self._count(old, -1)
            self._count(obj, 1)

    def on_state(self, kind: str, problem: str, synced: bool) -> None:
        """How a watch is: `problem` says why there is no news, "" when all is well."""
        before = self.state()
        self._problems.pop(kind, None)
        if problem:
            self._problems[kind] = problem
        if synced:
            self._unsynced.discard(kind)
        now = self.state()
        for one in self._viewers if now != before else ():
            one.state(now)

    def note(self, text: str) -> None:
        """What the page cannot show, and why."""
        self._notes.append(text)
        for one in self._viewers:
            one.state(self.state())

    def state(self) -> str:
        """The message that says how the watches are."""
        return texts.state(self._problems, not self._unsynced, self._cluster, self._notes)

    def join(self, viewer: Viewing) -> None:
        """From now on it is told of every change; first of everything."""
        self._viewers.add(viewer)
        viewer.state(self.state())
        viewer.rows(dict(self._rows))

    def leave(self, viewer: Viewing) -> None:
        self._viewers.discard(viewer)

    def follow(self, look: Look, on_change: Callable[[], None]) -> Callable[[], None]:
        """Call `on_change` whenever the object, or a slice of the Service, changes. The result ends that."""
        self._looks.setdefault(look, set()).add(on_change)

        def end() -> None:
            left = self._looks.get(look, set())
            left.discard(on_change)
            if not left:
                self._looks.pop(look, None)

        return end

    async def run(self) -> None:
        """Until cancelled: make the rows of what has changed, and tell the viewers."""
        while True:
            await self._news.wait()
            await self._clock.sleep(_FOLD)
            self._news.clear()
            changed, self._changed = self._changed, set()
            found: dict[str, Row | None] = {}
            began = breath = self._clock.monotonic()
            for kind, key in changed:
                name, row = row_key(kind, key), self._row(kind, key)
                if row != self._rows.get(name):
                    found[name] = row
                now = self._clock.monotonic()
                if now - breath > _BREATH:
                    await asyncio.sleep(0)
                    breath = self._clock.monotonic()
                if now - began > _PATIENCE:
                    self._publish(found)
                    found, began = {}, now
            self._publish(found)

    def _publish(self, found: Mapping[str, Row | None]) -> None:
        for name, row in found.items():
            if row is None:
                self._rows.pop(name, None)
            else:
                self._rows[name] = row
        if found:
            for one in self._viewers:
                one.rows(found)

    def _row(self, kind: str, key: Key) -> Row | None:
        obj = self.stores[kind].get(key)
        if obj is None:
            return None
        if kind == NODE:
            return rows.node_row(obj, self._pods[key[1]])
        if kind == POD:
            return rows.pod_row(obj, self._applied(key, obj))
        if kind == POLICY:
            return rows.policy_row(obj)
        if kind == CLUSTER_POLICY:
            return rows.cluster_policy_row(obj)
        there = self._slices.get(key, {})
        return rows.service_row(obj, there.values(), [self._counts[one] for one in there])

    def _applied(self, key: Key, pod: Json) -> Sequence[Applied]:
        mine, above = self._policies.get(key[0], {}), self.stores[CLUSTER_POLICY]
        return self._applied_to(pod, mine.values(), above.values(), self.stores[NAMESPACE].get(("", key[0])))

    def _touch(self, kind: str, key: Key) -> None:
        if kind in SHOWN:
            self._changed.add((kind, key))
            self._news.set()
            self._tell(Look(kind, key))

    def _tell(self, look: Look) -> None:
        for on_change in list(self._looks.get(look, ())):
            on_change()

    def _move_slice(self, key: Key, old: Json | None, obj: Json | None) -> None:
        for one in (old, obj):
            if one is None or (owner := _service_of(one)) is None:
                continue
            there = self._slices.setdefault(owner, {})
            if one is obj:
                there[key], self._counts[key] = one, rows.counted(one)
            else:
                there.pop(key, None)
                self._counts.pop(key, None)
            if not there:
                del self._slices[owner]
            self._touch(SERVICE, owner)

    def _move_policy(self, key: Key, obj: Json | None) -> None:
        there = self._policies.setdefault(key[0], {})
        there.pop(key, None)
        if obj is not None:
            there[key] = obj
        elif not there:
            del self._policies[key[0]]
        self._touch_pods_of(key[0])

    def _touch_pods_of(self, namespace: str) -> None:
        """Their rows say which policies apply to them."""
        self._changed.update((POD, pod) for pod in self.stores[POD] if pod[0] == namespace)
        self._news.set()

    def _count(self, pod: Json | None, by: int) -> None:
        """Whoever looks at a node looks at what happens to its pods, and is told of it here too."""
        node = _node_of(pod)
        if node:
            self._pods[node] += by
            self._touch(NODE, ("", node))
            if not self._pods[node]:
                del self._pods[node]


def _node_of(pod: Json | None) -> str:
    return str(object_or_empty((pod or {}).get("spec")).get("nodeName") or "")


def _labels(obj: Json | None) -> Json:
    return object_or_empty(object_or_empty((obj or {}).get("metadata")).get("labels"))


def _service_of(part: Json) -> Key | None:
    meta = part["metadata"]
    name = object_or_empty(meta.get("labels")).get(_SERVICE_NAME)
    return (str(meta.get("namespace") or ""), str(name)) if name else None
