"""This machine as a Node: registered, its status written when it changes, its neighbours handed on.

One writer of the status: changes poke a bounded-frequency runner, which reads the machine and the
runtime, asks the plan for the status and patches what differs; without a poke it looks every
nodeStatusUpdateFrequency and reports every nodeStatusReportFrequency.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from agent.admission.plan.sysctls import kernel_version
from agent.common.model.pods import ImageFacts
from agent.common.plan.demand import Amounts
from agent.common.ports import Events
from agent.common.work.observable import Observable
from agent.node.model import MachineFacts, NodeCondition, NodeEvent, NodeInputs, NodePlace
from agent.node.plan import node as plan
from agent.plugins.model import NodeExtras
from agent.runtime.model import ImageService, RuntimeFacts, RuntimeService
from agent.runtime.plan import DOWN_AFTER
from agent.runtime.work.watch import RuntimeWatch
from nodelib.backoff import Backoff
from nodelib.clock import Clock
from nodelib.errors import NodewrightError, Permanent
from nodelib.json_values import Json
from nodelib.kube.client import ApiError, KubeClient
from nodelib.kube.reflector import Reflector
from nodelib.kube.skew import version_skew
from nodelib.runner import BoundedFrequencyRunner
from nodelib.tasks import Work

log = logging.getLogger(__name__)

_NODES = "/api/v1/nodes"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_IMAGES_AGE = 30.0
_FIRST_PAUSE, _LONGEST_PAUSE, _GROWTH = 0.1, 7.0, 1.5


class Machine(Protocol):
    """node/edge/machine.py Machine."""

    def facts(self) -> MachineFacts: ...


@dataclass(frozen=True, slots=True)
class NodeEdges:
    """What the keeper works through. `addresses()`: the node's InternalIPs, raising when there is none."""

    client: KubeClient
    runtime: RuntimeService
    images: ImageService
    machine: Machine
    events: Events
    clock: Clock
    addresses: Callable[[], Awaitable[tuple[str, ...]]]


@dataclass(frozen=True, slots=True)
class NodeHooks:
    """What the keeper asks when it makes a status, and whom it informs.

    `on_nodes` (None: not wanted) is called with all Nodes whenever one of them comes, goes or changes its addresses or
    ranges; it may not block. `own_node` is set to this Node as the API last showed it. `extras()`: what plugins add to
    the status; `problems()`: reasons, in words, why this node is not ready beside the runtime's; `conditions()`: more
    conditions; `pressures()`: the pressure conditions that hold now. Call poke() when one of these changes.
    """

    on_nodes: Callable[[list[NodePlace]], None] | None = None
    extras: Callable[[], NodeExtras] = NodeExtras
    own_node: Observable[Json | None] = field(default_factory=lambda: Observable(None))
    problems: Callable[[], list[str]] = list
    conditions: Callable[[], list[NodeCondition]] = list
    pressures: Callable[[], Iterable[str]] = tuple


@dataclass(frozen=True, slots=True)
class NodeTimes:
    """Seconds: how often the status is looked at, how often it is sent although nothing changed; how long the runtime
    may take for an answer that the status waits for."""

    update: float = 10.0
    report: float = 300.0
    answer: float = 10.0


class NodeKeeper:
    """Owner of the Node object. Spawn `tasks()`; `node` is the object as the API last showed it, None before.

    Making one raises Permanent when more is reserved than the machine has.
    """

    def __init__(
        self,
        edges: NodeEdges,
        hooks: NodeHooks,
        policy: plan.NodePolicy,
        *,
        port: int = 10250,
        register: bool = True,
        times: NodeTimes | None = None,
    ) -> None:
        self.registered = asyncio.Event()
        self.last_error = ""
        self._edges, self._hooks, self._policy = edges, hooks, policy
        self._port, self._register, self._times = port, register, times or NodeTimes()
        self._machine = edges.machine.facts()
        plan.check_reservations(self._machine, policy)
        self._reported: float | None = None
        self._images: tuple[ImageFacts, ...] = ()
        self._images_seen: float | None = None
        self._pod_cidrs: tuple[str, ...] = ()
        self._facts: dict[str, NodePlace] = {}
        self._runner = BoundedFrequencyRunner(
            "node status",
            self.sync,
            min_interval=0.1,
            retry_interval=1.0,
            max_interval=self._times.update,
            clock=edges.clock,
        )
        self.watch = RuntimeWatch(edges.runtime, edges.clock, self._times.answer, self._runner.poke)
        path = {"fieldSelector": f"metadata.name={policy.name}"}
        self._own = Reflector(edges.client, _NODES, name="own Node", params=path, on_change=self._own_changed)
        self._all = Reflector(edges.client, _NODES, name="Nodes", on_change=self._node_changed)

    @property
    def runtime(self) -> RuntimeFacts:
        """What the runtime last said of itself."""
        return self.watch.facts

    @property
    def node(self) -> Json | None:
        """The object as the API last showed it, None before."""
        return self._hooks.own_node.now

    @property
    def uid(self) -> str:
        """The Node's UID, "" before it is registered."""
        return str(self.node["metadata"]["uid"]) if self.node is not None else ""

    @property
    def labels(self) -> Mapping[str, str]:
        """The Node's labels, for admission; those to register with before the API has answered."""
        known = self.node or plan.initial_node(self._policy, self._machine.architecture, self._policy.name)
        return dict(known["metadata"].get("labels") or {})

    @property
    def kernel(self) -> tuple[int, int]:
        """Major and minor version, for admission."""
        return kernel_version(self._machine.kernel_version)

    @property
    def apparmor(self) -> bool:
        """The kernel enforces AppArmor profiles, for admission."""
        return self._machine.apparmor

    @property
    def capacity(self) -> Amounts:
        return plan.capacity(self._machine, self._policy)

    @property
    def allocatable(self) -> Amounts:
        """What pods may ask for on this node, for admission."""
        return plan.allocatable(self.capacity, self._policy)

    @property
    def enforced(self) -> Amounts:
        """What the kubepods cgroup may use (KubepodsTree.setup)."""
        return plan.enforced(self._machine, self._policy)

    @property
    def ref(self) -> Json:
        """ObjectReference of the Node, for Events."""
        # Upstream's events about nodes carried the name as UID for years; the true one is there since 1.37.
        return {"apiVersion": "v1", "kind": "Node", "name": self._policy.name, "uid": self.uid or self._policy.name}

    def tasks(self) -> dict[str, Work]:
        """Name -> long-lived work, for the supervisor."""
        found: dict[str, Work] = {"node-runtime": self.watch.run, "node-status": self.keep_status}
        found["node-watch"] = self._own.run
        if self._hooks.on_nodes is not None:
            found["nodes-watch"] = self._all.run
        return found

    def poke(self) -> None:
        """Something that the status shows has changed: look soon."""
        self._runner.poke()

    async def keep_status(self) -> None:
        """Register, then keep the status true, until cancelled."""
        await self.register()
        self._edges.events.emit(self.ref, "Normal", "Starting", "Starting kubelet.")
        # A restarted agent must not report NotReady just because it has not asked the runtime yet.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.watch.answered.wait(), DOWN_AFTER)
        self._runner.poke()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._tell_skew(), name="version skew")
            await self._runner.run()

    async def _tell_skew(self) -> None:
        if found := await version_skew(self._edges.client, self._edges.clock):
            self._edges.events.emit(self.ref, "Warning", "VersionSkew", f"kubelet {found}.")

    async def register(self) -> None:
        """Create the Node or take over the existing one; tried again until it is done."""
        pause = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, growth=_GROWTH)
        while True:
            try:
                self._learn(await self._create_or_take())
                break
            except NodewrightError as error:
                self._failed(f"Node {self._policy.name} is not registered: {error}")
                await self._edges.clock.sleep(pause.next())
        self._well()
        log.info("Node %s is registered", self._policy.name)
        self.registered.set()

    async def sync(self) -> None:
        """One look: compute the status and patch what differs. Raises ApiError, ApiUnreachable."""
        if self.node is None:
            return
        now = self._edges.clock.now()
        old = self.node.get("status") or {}
        new, events = plan.node_status(old, await self._inputs(), self._policy, now)
        due = self._reported is None or self._edges.clock.monotonic() - self._reported >= self._times.report
        if not plan.changed(old, new) and not self._lost_labels() and not due:
            return
        await self._show(old, new)
        self._reported = self._edges.clock.monotonic()
        self._emit(events)

    async def _create_or_take(self) -> Json:
        wanted = plan.initial_node(self._policy, self._machine.architecture, self._policy.name)
        if self._register:
            wanted["status"], events = plan.node_status({}, await self._inputs(), self._policy, self._edges.clock.now())
            try:
                created = await self._edges.client.post(_NODES, wanted)
                self._emit(events)
                return created
            except ApiError as error:
                if not (error.is_already_exists or error.is_forbidden):
                    raise
                refused = error
        try:
            existing = await self._edges.client.get(f"{_NODES}/{self._policy.name}")
        except ApiError as error:
            if self._register and error.is_not_found:
                raise refused from error
            raise
        await self._refuse_if_foreign(existing)
        patch = plan.metadata_patch(wanted, existing)
        return await self._patch(patch) if patch else existing

    async def _refuse_if_foreign(self, existing: Json) -> None:
        try:
            lease = await self._edges.client.get(f"{_LEASES}/{self._policy.name}")
        except ApiError as error:
            if not error.is_not_found:
                raise
            lease = None
        problem = plan.foreign_owner(existing, lease, self._machine, self._edges.clock.now())
        if problem:
            raise Permanent(
                problem,
                obj=f"Node {self._policy.name}",
                step="register",
                action="Stop the agent there, or give this machine another name with --hostname-override.",
            )

    async def _inputs(self) -> NodeInputs:
        problems = list(self._hooks.problems())
        try:
            ips = await self._edges.addresses()
        except NodewrightError as error:
            ips = ()
            problems.append(str(error))
        if not self._pod_cidrs and not self.runtime.network_ready:
            problems.append("this Node has no podCIDR yet (kube-controller-manager --allocate-node-cidrs assigns it)")
        await self._look_at_images()
        addresses = [("InternalIP", ip) for ip in ips] + [("Hostname", self._policy.name)]
        return NodeInputs(
            machine=self._machine,
            runtime=self.runtime,
            addresses=tuple(addresses) if ips else (),
            images=self._images,
            pressures=frozenset(self._hooks.pressures()),
            problems=tuple(problems),
            port=self._port,
            declared_features=plan.DECLARED_FEATURES,
            more=tuple(self._hooks.conditions()),
            extras=self._hooks.extras(),
        )

    async def _look_at_images(self) -> None:
        now = self._edges.clock.monotonic()
        if self._images_seen is not None and now - self._images_seen < _IMAGES_AGE:
            return
        try:
            async with asyncio.timeout(self._times.answer):
                self._images = await self._edges.images.list_images()
        except TimeoutError:
            # The status is more urgent than its list of images: the next try is not with the very next status.
            log.warning("the runtime did not list its images in %g s", self._times.answer)
        except NodewrightError as error:
            log.debug("images cannot be listed now: %s", error)
            return
        self._images_seen = now

    def _lost_labels(self) -> Json:
        return plan.platform_patch(self.node, self._machine.architecture) if self.node is not None else {}

    async def _show(self, old: Json, new: Json) -> None:
        await self._patch({**self._lost_labels(), **plan.status_patch(old, new)})

    async def _patch(self, patch: Json) -> Json:
        path = f"{_NODES}/{self._policy.name}/status"
        updated = await self._edges.client.patch(path, patch, kind="strategic")
        self._learn(updated)
        return updated

    def _own_changed(self, kind: str, node: Json, old: Json | None) -> None:
        if kind == "DELETED":
            log.error("Node %s was deleted; restart the agent to register it again", self._policy.name)
            self._hooks.own_node.set(None)
            return
        if old is None or (old.get("spec") or {}) != (node.get("spec") or {}):
            self._emit(plan.schedulable_events(old, node))
        self._learn(node)
        self._node_changed(kind, node, old)  # a cluster may forbid a node to list the others

    def _learn(self, node: Json) -> None:
        if self.node is not None and _version(node) < _version(self.node) and _uid(node) == _uid(self.node):
            return  # the watch is behind our own patch
        self._hooks.own_node.set(node)
        cidrs = plan.node_facts(node).pod_cidrs
        if cidrs and cidrs != self._pod_cidrs:
            log.info("pod ranges of this node: %s", ", ".join(cidrs))
            self._pod_cidrs = cidrs
            self._runner.poke()

    def _node_changed(self, kind: str, node: Json, _: Json | None) -> None:
        name = str(node["metadata"]["name"])
        if kind == "DELETED":
            changed = self._facts.pop(name, None) is not None
        else:
            fresh = plan.node_facts(node)
            changed = self._facts.get(name) != fresh
            self._facts[name] = fresh
        if changed and self._hooks.on_nodes is not None:
            self._hooks.on_nodes([self._facts[name] for name in sorted(self._facts)])

    def _emit(self, events: tuple[NodeEvent, ...]) -> None:
        for event in events:
            self._edges.events.emit(self.ref, event.kind, event.reason, event.message)

    def _failed(self, message: str) -> None:
        if message != self.last_error:
            log.error("%s", message)
        self.last_error = message

    def _well(self) -> None:
        self.last_error = ""


def _version(node: Json) -> int:
    """resourceVersion as a number: comparable since Kubernetes 1.35 (KEP-5504)."""
    return int(node["metadata"].get("resourceVersion") or 0)


def _uid(node: Json) -> str:
    return str(node["metadata"].get("uid", ""))
