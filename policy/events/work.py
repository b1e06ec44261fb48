"""Writes events about policies and packets, for nodes, policies and pods; never a flood of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from itertools import islice
from typing import Any

from nodelib.clock import Clock
from nodelib.kube.events import Events
from policy.drops.model import Drop
from policy.events import plan
from policy.model import Name, Pod, Problem
from policy.plan.directory import Directory
from policy.plan.parse_cluster import KIND
from policy.watches.cluster_policies import GROUP, VERSION

log = logging.getLogger(__name__)

_PAUSE = 60.0  # seconds between two events about failed syncs
_REFUSED_APART = 300.0  # seconds between two events about refused packets of one pod in one direction
_POLICY_APART = 60.0  # seconds between two events, and lines of the log, about what one policy says
_AT_ONCE, _SECONDS = 20, 5.0  # events about pods at once, and then one in so many seconds; as many about policies
_SHOWN = 5  # policies and pods that get an event about one failed sync
_UNWRITTEN = 1000
_LOOKED_AT = 200  # policies of a namespace with faults, for each change of one of its pods
_VERSIONS = {"NetworkPolicy": "networking.k8s.io/v1", KIND: f"{GROUP}/{VERSION}"}

Once = Callable[[str, Callable[[], Coroutine[Any, Any, None]]], object]


class PolicyEvents:
    """`once` starts work that ends by itself, under a name."""

    def __init__(self, recorder: Events, once: Once, directory: Directory, node: str, clock: Clock) -> None:
        self._recorder, self._once, self._directory, self._node, self._clock = recorder, once, directory, node, clock
        # Apart from each other: no flood of refused packets hides what is wrong with a policy.
        self._pace = plan.Pace(at_once=_AT_ONCE, seconds=_SECONDS, apart=_REFUSED_APART)
        self._policy_pace = plan.Pace(at_once=_AT_ONCE, seconds=_SECONDS, apart=_POLICY_APART)
        self._last_failure = -_PAUSE
        self._uids: dict[Name, str] = {}
        self._problems: dict[str, dict[Name, str]] = {}  # by namespace
        self._too_large: set[Name] = set()
        self._unwritten: dict[Name, None] = {}

    def node(self, reason: str, note: str, *, warning: bool = True) -> None:
        self._record("Node", Name("", self._node), reason, note, warning=warning)

    def policy(self, name: Name, uid: str, problems: Sequence[Problem]) -> None:
        """A policy as it is now, and what of it was left out."""
        self._uids[name] = uid
        if len(self._unwritten) < _UNWRITTEN:
            self._unwritten[name] = None
        if not problems:
            self._forget_problems(name)
            return
        text = self._problems.setdefault(name.namespace, {})[name] = plan.summary(problems)
        self._about_policy(name, "PartNotUnderstood", plan.left_out(name, text), uid)
        for pod in self._directory.selected_here(name):
            self._left_out(pod, name, text)

    def cluster_policy(self, name: str, uid: str, problems: Sequence[Problem]) -> None:
        """A ClusterNetworkPolicy as it is now, and what of it was not understood."""
        self._uids[Name("", name)] = uid
        if not problems:
            return
        note = f"{KIND} {name}: {plan.summary(problems)}"
        self._about_policy(Name("", name), "PartNotUnderstood", note, uid)

    def too_large(self, names: set[Name]) -> None:
        """The policies that have no room now."""
        for name in sorted(names - self._too_large):
            self._about_policy(name, "PolicyTooLarge", plan.too_large(name), self._uids.get(name, ""))
        self._too_large = names

    def policy_gone(self, name: Name) -> None:
        """A policy was deleted; a ClusterNetworkPolicy has no namespace."""
        for known in (self._uids, self._unwritten):
            known.pop(name, None)
        self._forget_problems(name)

    def _forget_problems(self, name: Name) -> None:
        known = self._problems.get(name.namespace, {})
        known.pop(name, None)
        if not known:
            self._problems.pop(name.namespace, None)

    def pod(self, pod: Pod) -> None:
        """A pod as it is now: it gets an event about each policy that isolates it and was not understood whole."""
        known = self._problems.get(pod.name.namespace)
        if known and pod.node == self._node and not pod.ended:
            for name, text in islice(known.items(), _LOOKED_AT):
                if self._directory.isolates(name, pod.name):
                    self._left_out(pod.name, name, text)

    def synced(self) -> None:
        """All that was known is in force."""
        self._unwritten.clear()

    def failed(self, error: Exception) -> None:
        """Nothing that changed lately is in force: events for the node and whatever waits for it."""
        now = self._clock.monotonic()
        if now - self._last_failure < _PAUSE:
            return
        self._last_failure = now
        self.node("NetworkPolicyNotWritten", str(error))
        for name in list(self._unwritten)[:_SHOWN]:
            note = f"not in force on node {self._node} as it is now: {error}"
            self._record("NetworkPolicy", name, "NetworkPolicyNotWritten", note, uid=self._uids.get(name, ""))
            for pod in self._directory.selected_here(name)[:_SHOWN]:
                self._about_pod(pod, "NetworkPolicyNotWritten", f"NetworkPolicy {name.name} is {note}", "")

    def refused(self, drop: Drop) -> None:
        about = plan.whom(drop)
        if about is not None and self._pace.may(("refused", about, drop.flow.direction), self._clock.monotonic()):
            self._about_pod(about, "NetworkPolicyDropped", plan.refused(drop, about), "")

    def _left_out(self, pod: Name, policy: Name, problems: str) -> None:
        if self._pace.may(("pod", pod, policy), self._clock.monotonic()):
            note = plan.left_out(policy, problems)
            self._about_pod(pod, "NetworkPolicyPartNotUnderstood", note, note)

    def _about_policy(self, name: Name, reason: str, note: str, uid: str) -> None:
        if self._policy_pace.may((reason, name), self._clock.monotonic()):
            log.warning("%s", f"{name.namespace}: {note}" if name.namespace else note)
            kind = "NetworkPolicy" if name.namespace else KIND
            self._record(kind, name, reason, note, uid=uid, once=note)

    def _about_pod(self, pod: Name, reason: str, note: str, once: str) -> None:
        known = self._directory.pod(pod)
        self._record("Pod", pod, reason, note, uid="" if known is None else known.uid, once=once)

    def _record(
        self, kind: str, name: Name, reason: str, note: str, *, uid: str = "", once: str = "", warning: bool = True
    ) -> None:
        async def record() -> None:
            await self._recorder.record(
                kind,
                name.namespace,
                name.name,
                reason=reason,
                action="EnforceNetworkPolicy",
                note=note,
                warning=warning,
                uid=uid,
                api_version=_VERSIONS.get(kind, "v1"),
                once=once,
            )

        self._once(f"event-{kind}-{name}-{reason}", record)
