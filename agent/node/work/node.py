"""Registers this machine as a Node and keeps its status true (syncNodeStatus in pkg/kubelet/kubelet_node_status.go).

Changes poke a bounded-frequency runner, the only writer of the status: it reads the machine and the runtime, asks the
plan for the status and patches what differs. Without a poke it does so every nodeStatusUpdateFrequency; a status that
has not changed is sent every nodeStatusReportFrequency.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping

from agent.admission.plan.sysctls import kernel_version
from agent.common.plan.demand import Amounts
from agent.common.work.observable import until
from agent.node.model import NodeEvent, NodeInputs, NodePolicy
from agent.node.plan import capacity as capacity_plan
from agent.node.plan import status as plan
from agent.node.plan.conditions import schedulable_events
from agent.node.plan.registration import platform_patch
from agent.node.work.deps import NodeEdges, NodeHooks, NodeTimes
from agent.node.work.image_list import ImageList
from agent.node.work.node_places import NodePlaces
from agent.node.work.registration import NODES, Registration
from agent.runtime.model import RuntimeFacts
from agent.runtime.plan import DOWN_AFTER
from agent.runtime.work.watch import RuntimeWatch
from nodelib.backoff import Backoff
from nodelib.errors import NodewrightError
from nodelib.json_values import Json
from nodelib.kube.client import ApiError
from nodelib.kube.reflector import Reflector
from nodelib.kube.skew import version_skew
from nodelib.kube.versions import is_lower_for_good, version_of
from nodelib.runner import BoundedFrequencyRunner
from nodelib.tasks import Work, side_by_side

log = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE, _GROWTH = 0.1, 7.0, 1.5  # seconds between tries to register
_AGAIN_PAUSES = (1.0, 300.0)  # seconds before a deleted Node is registered again: doubled when it is deleted again soon
_STANDS_AFTER = 600.0  # seconds; a Node that stood so long is registered again after the first pause


class NodeManager:
    """Owner of the Node object. Run `tasks()`. The constructor raises Permanent when more is reserved than there is."""

    def __init__(
        self,
        edges: NodeEdges,
        hooks: NodeHooks,
        policy: NodePolicy,
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
        capacity_plan.check_reservations(self._machine, policy)
        self._registration = Registration(edges.client, policy, self._machine, edges.clock)
        self._images = ImageList(edges.images, edges.clock, self._times.answer)
        self._places = NodePlaces(hooks.on_nodes)
        self._reported: float | None = None
        self._pod_cidrs: tuple[str, ...] = ()
        self._stored = 0.0
        self._deleted = ""  # the UID of the Node that somebody deleted last
        self._runner = BoundedFrequencyRunner(
            "node status",
            self.sync,
            min_interval=0.1,
            retry_interval=1.0,
            max_interval=self._times.update,
            clock=edges.clock,
        )
        self.watch = RuntimeWatch(edges.runtime, edges.clock, self._runner.poke)
        path = {"fieldSelector": f"metadata.name={policy.name}"}
        self._own = Reflector(edges.client, NODES, name="own Node", params=path, on_change=self._on_own_node)
        self._all = Reflector(edges.client, NODES, name="Nodes", on_change=self._places.on_node)

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
        """The Node's labels, for admission; before the API has answered, those to register with."""
        known = self.node or self._registration.wanted
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
    def selinux(self) -> bool:
        """It is enabled."""
        return self._machine.selinux is not None

    @property
    def capacity(self) -> Amounts:
        return capacity_plan.capacity(self._machine, self._policy)

    @property
    def allocatable(self) -> Amounts:
        """What pods may ask for on this node, for admission."""
        return capacity_plan.allocatable(self.capacity, self._policy)

    @property
    def enforced(self) -> Amounts:
        """What the kubepods cgroup may use (KubepodsTree.setup)."""
        return capacity_plan.enforced(self._machine, self._policy)

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
        """Something that the status shows has changed: compute it again soon."""
        self._runner.poke()

    async def keep_status(self) -> None:
        """Register, then keep the status true, until cancelled."""
        await self.register()
        self._edges.events.emit(self.ref, "Normal", "Starting", "Starting kubelet.")
        # A restarted agent must not report NotReady just because it has not asked the runtime yet.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DOWN_AFTER):
                await self.watch.answered.wait()
        self._runner.poke()
        await side_by_side(
            version_skew=self._report_version_skew(), registration=self._keep_registered(), status=self._runner.run()
        )

    async def _report_version_skew(self) -> None:
        if found := await version_skew(self._edges.client, self._edges.clock):
            self._edges.events.emit(self.ref, "Warning", "VersionSkew", f"kubelet {found}.")

    async def register(self) -> None:
        """Create the Node or take over the existing one; try again until that is done."""
        pause = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, growth=_GROWTH)
        while True:
            try:
                self._store(await self._create_or_take_over())
                break
            except NodewrightError as error:
                self._failed(f"Node {self._policy.name} is not registered: {error}")
                await self._edges.clock.sleep(pause.next(error.retry_after))
        self.last_error = ""
        log.info("Node %s is registered", self._policy.name)
        self.registered.set()

    async def _keep_registered(self) -> None:
        """Register a Node that somebody deleted again. Upstream's kubelet does so only when it starts.

        Its pods live on: the garbage collector of pods grants a Node that is gone 40 s. Pauses grow, so that a
        controller that deletes it for good is not fought.
        """
        pause, since = Backoff(*_AGAIN_PAUSES), self._edges.clock.monotonic()
        while True:
            await until(self._hooks.own_node, lambda node: node is None)
            if self._edges.clock.monotonic() - since >= _STANDS_AFTER:
                pause.reset()
            seconds = pause.next()
            log.warning("Node %s was deleted: registering it again in %g s", self._policy.name, seconds)
            await self._edges.clock.sleep(seconds)
            await self.register()
            since = self._edges.clock.monotonic()
            self._reported = None
            self._runner.poke()

    async def sync(self) -> None:
        """Compute the status and patch what differs. Raises ApiError, ApiUnreachable."""
        if self.node is None:
            return
        now = self._edges.clock.now()
        old = self.node.get("status") or {}
        new, events = plan.node_status(old, await self._inputs(), self._policy, now)
        due = self._reported is None or self._edges.clock.monotonic() - self._reported >= self._times.report
        if not plan.changed(old, new) and not self._label_repair() and not due:
            return
        await self._write(old, new)
        self._reported = self._edges.clock.monotonic()
        self._emit(events)

    async def _create_or_take_over(self) -> Json:
        if not self._register:
            return await self._registration.take_over()
        status, events = plan.node_status({}, await self._inputs(), self._policy, self._edges.clock.now())
        try:
            created = await self._registration.create(status, self._former_ranges())
        except ApiError as refused:
            if not (refused.is_already_exists or refused.is_forbidden):
                raise
            return await self._take_over_after(refused)
        self._emit(events)
        return created

    def _former_ranges(self) -> tuple[str, ...]:
        """The pod ranges of a Node that was deleted, which its pods have addresses of; () when the pod network is not
        ours, or another node has them by now."""
        others = self._places.ranges_beside(self._policy.name)
        kept = self._pod_cidrs if self._hooks.on_nodes is not None else ()
        return () if others & set(kept) else kept

    async def _take_over_after(self, refused: ApiError) -> Json:
        try:
            return await self._registration.take_over()
        except ApiError as error:
            if error.is_not_found:
                raise refused from error  # nothing to take over: why it could not be created says more
            raise

    async def _inputs(self) -> NodeInputs:
        problems = list(self._hooks.problems())
        try:
            ips = await self._edges.addresses()
        except NodewrightError as error:
            ips = ()
            problems.append(str(error))
        if not self._pod_cidrs and not self.runtime.network_ready:
            problems.append("this Node has no podCIDR yet (kube-controller-manager --allocate-node-cidrs assigns it)")
        addresses = [("InternalIP", ip) for ip in ips] + [("Hostname", self._policy.name)]
        return NodeInputs(
            machine=self._machine,
            runtime=self.runtime,
            addresses=tuple(addresses) if ips else (),
            images=await self._images.newest(),
            pressures=frozenset(self._hooks.pressures()),
            problems=tuple(problems),
            port=self._port,
            declared_features=plan.DECLARED_FEATURES,
            more=tuple(self._hooks.conditions()),
            extras=self._hooks.extras(),
        )

    def _label_repair(self) -> Json:
        """A patch for the labels that must stay as they are; {} for nothing."""
        return platform_patch(self.node, self._machine.architecture) if self.node is not None else {}

    async def _write(self, old: Json, new: Json) -> None:
        self._store(await self._registration.patch({**self._label_repair(), **plan.status_patch(old, new)}))

    def _on_own_node(self, kind: str, node: Json, old: Json | None) -> None:
        if kind == "DELETED":
            if self.node is None or _uid(node) == _uid(self.node):
                self._deleted = _uid(node)
                self._hooks.own_node.set(None)
            return
        if _uid(node) == self._deleted:
            return  # an API server that is behind
        if old is None or (old.get("spec") or {}) != (node.get("spec") or {}):
            self._emit(schedulable_events(old, node))
        self._store(node)
        self._places.on_node(kind, node, old)  # a cluster may forbid a node to list the others

    def _store(self, node: Json) -> None:
        now = self._edges.clock.monotonic()
        if self.node is not None and version_of(node) < version_of(self.node) and _uid(node) == _uid(self.node):
            if not is_lower_for_good(version_of(node), version_of(self.node), now - self._stored):
                return  # the watch is behind our own patch
            log.warning("the Node has a lower resourceVersion: was the cluster restored from a backup?")
        self._stored = now
        self._hooks.own_node.set(node)
        cidrs = plan.node_place(node).pod_cidrs
        if cidrs and cidrs != self._pod_cidrs:
            log.info("pod ranges of this node: %s", ", ".join(cidrs))
            self._pod_cidrs = cidrs
            self._runner.poke()

    def _emit(self, events: tuple[NodeEvent, ...]) -> None:
        for event in events:
            self._edges.events.emit(self.ref, event.kind, event.reason, event.message)

    def _failed(self, message: str) -> None:
        if message != self.last_error:
            log.error("%s", message)
        self.last_error = message


def _uid(node: Json) -> str:
    return str(node["metadata"].get("uid", ""))
