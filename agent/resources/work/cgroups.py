"""The kubepods tree of this node: PodCgroups of agent/pods/ports.py.

kubepods has the limits for all pods; below it are the two QoS classes and in these the pods (Guaranteed pods directly
under kubepods). Everything is idempotent, so that a restarted agent can continue with the existing tree.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from decimal import Decimal
from typing import Protocol

from agent.common.model.pods import Pod
from agent.common.plan.demand import Qos, qos_class
from agent.resources.model import Limits, MemoryUse
from agent.resources.plan import cgroup_reading as reading
from agent.resources.plan import cgroups as plan
from agent.resources.plan.memory_qos import Kept, kept
from nodelib.errors import NodewrightError, Permanent, Temporary

log = logging.getLogger(__name__)

Timed = Callable[[str], AbstractContextManager[object]]


class Tree(Protocol):
    """resources/edge/cgroups.py CgroupTree."""

    version: int
    controllers: frozenset[str]

    async def make(self, path: str, writes: Iterable[plan.Write]) -> None: ...

    async def read(self, path: str, controller: str, file: str) -> str: ...

    async def read_all(self, path: str, files: Iterable[tuple[str, str]]) -> dict[str, str]: ...

    async def children(self, path: str) -> frozenset[str]: ...

    async def exists(self, path: str) -> bool: ...

    async def end(self, path: str, word: str) -> None:
        """Kill what is in the child cgroups whose name contains `word`."""
        ...

    async def remove(self, path: str) -> None: ...


class Slices(Protocol):
    """resources/edge/systemd.py SystemdSlices."""

    async def check(self) -> None: ...

    async def ensure(self, unit: str, properties: list[str]) -> None: ...

    async def stop(self, unit: str) -> None: ...


class KubepodsTree:
    """Manages kubepods and everything below it, except for the containers' cgroups, which the runtime creates.

    `unthrottled(pod)`: the pod has exclusive CPUs. `timed(operation)` surrounds each operation on a cgroup.
    """

    def __init__(
        self,
        tree: Tree,
        policy: plan.Policy,
        *,
        hugepage_sizes: tuple[int, ...] = (),
        slices: Slices | None = None,
        unthrottled: Callable[[Pod], bool] = lambda pod: False,
        timed: Timed = nullcontext,
    ) -> None:
        self._tree, self._timed = tree, timed
        self._policy = policy
        self._sizes = hugepage_sizes
        self._slices = slices if policy.driver == "systemd" else None
        self._applied: dict[str, plan.Limits] = {}
        self._counted: dict[str, Pod] = {}  # those that change what is written for all of a class
        self._node_limits = Limits()
        self._classes = asyncio.Lock()
        self._unthrottled = unthrottled

    @property
    def kept(self) -> Kept:
        """Memory that is kept for the pods of each class, in bytes."""
        return kept(self._counted.values(), self._policy.memory)

    @property
    def root(self) -> str:
        """Path of the cgroup of all pods."""
        return self._path(plan.root_name(self._policy))

    async def setup(self, allocatable: Mapping[str, Decimal]) -> None:
        """Create kubepods and the QoS classes. `allocatable`: cpu, memory, pid and hugepages-* for all pods together.

        Raises CgroupError, or Permanent when the driver does not work on this machine.
        """
        if self._policy.fail_v1 and self._tree.version == 1:
            raise Permanent(
                "this machine has cgroup v1 and the configuration refuses it",
                obj="failCgroupV1: true",
                step="make cgroups",
                action="Set failCgroupV1: false (both versions are served), or boot with cgroup v2.",
            )
        if self._policy.group_oom_kill and self._tree.version == 1:
            raise Permanent(
                "cgroup v1 cannot kill all processes of a container that runs out of memory",
                obj="singleProcessOOMKill: false",
                step="make cgroups",
                action="Leave the field out, or boot with cgroup v2.",
            )
        if self._slices is not None:
            await self._slices.check()
        if not self._policy.per_qos:
            return
        self._node_limits = plan.limits_of_node(allocatable)
        await self._update_classes()
        try:
            await self.enforce()
        except Temporary as error:
            log.warning("all pods together use more than their limit, which is tried again: %s", error)

    async def enforce(self) -> None:
        """Set the limits of all pods together. Raises CgroupError while they use more memory than that."""
        if self._policy.per_qos:
            await self._apply(plan.root_name(self._policy), self._node_limits)

    async def ensure_pod(self, pod: Pod, *, keep: bool = False) -> str:
        """See PodCgroups."""
        if not self._policy.per_qos:
            return plan.cri_parent(self.root, self._policy.driver) if self._policy.root != "/" else ""
        name = plan.pod_name(self._policy, pod)
        if not (keep and await self._tree.exists(self._path(name))):
            await self._apply(name, self.wanted(pod))
        await self._count(pod)
        return plan.cri_parent(self._path(name), self._policy.driver)

    def wanted(self, pod: Pod) -> Limits:
        """See PodCgroups. Pods with exclusive CPUs have no CPU quota (KEP-2625)."""
        return plan.limits_of_pod(pod, self._policy.of(throttled=not self._unthrottled(pod)))

    async def limits(self, pod: Pod) -> Limits | None:
        """See PodCgroups. Raises CgroupError."""
        if not self._policy.per_qos:
            return None
        path, made = self._path(plan.pod_name(self._policy, pod)), self.wanted(pod)
        files = reading.V2_FILES if self._tree.version == 2 else reading.V1_FILES
        texts = await self._tree.read_all(path, files)
        written = self._applied.get(path)
        shares = written.cpu_shares if written is not None else made.cpu_shares
        found = reading.limits_read(self._tree.version, texts, shares)
        return replace(
            found,
            pids=made.pids,
            hugepages=made.hugepages,
            memory_min=made.memory_min,
            memory_low=made.memory_low,
            memory_high=made.memory_high,
        )

    async def set_limits(self, pod: Pod, limits: Limits) -> None:
        """See PodCgroups. Raises CgroupError: more memory than that is in use."""
        await self._apply(plan.pod_name(self._policy, pod), limits)
        await self._count(pod)

    async def memory_use(self, pod: Pod, container_ids: Iterable[str]) -> MemoryUse:
        """See PodCgroups. Memory that cannot be read is left out."""
        path = self._path(plan.pod_name(self._policy, pod))
        leaves = await self._tree.children(path)
        by_container = {plan.container_of(leaf): leaf for leaf in leaves}
        paths = {one: f"{path}/{by_container[one]}" for one in container_ids if one in by_container}
        own, *inner = await asyncio.gather(self._use(path), *(self._use(below) for below in paths.values()))
        found = zip(paths, inner, strict=True)
        return MemoryUse(own, {one: used for one, used in found if used is not None})

    async def _use(self, path: str) -> int | None:
        try:
            text = await self._tree.read(path, "memory", reading.USE_FILES[self._tree.version])
        except NodewrightError as error:
            log.warning("the memory in use cannot be read: %s", error)
            return None
        return int(text)

    async def end_container(self, uid: str, container_id: str) -> None:
        """See PodCgroups. Raises CgroupError: a process survives SIGKILL."""
        for path in [path for path in self._applied if self._belongs(path, uid)] or await self._find(uid):
            await self._tree.end(path, container_id)

    async def remove_pod(self, uid: str) -> None:
        """Kill all processes in the pod's cgroup and remove it; idempotent."""
        for path in [path for path in self._applied if self._belongs(path, uid)] or await self._find(uid):
            await self._remove(path)
        if self._counted.pop(uid, None) is not None:
            await self._update_classes()

    def _belongs(self, path: str, uid: str) -> bool:
        return plan.uid_of(path.rpartition("/")[2], self._policy.driver) == uid

    async def _find(self, uid: str) -> list[str]:
        """The paths that an earlier agent created for the pod."""
        parents = [self._path(plan.qos_name(self._policy, quality)) for quality in Qos]
        paths = [f"{parent}/{leaf}" for parent in parents for leaf in await self._tree.children(parent)]
        return [path for path in paths if self._belongs(path, uid)]

    async def pod_uids(self) -> frozenset[str]:
        """UIDs of all pods that have a cgroup, of any class."""
        if not self._policy.per_qos:
            return frozenset()
        found: set[str] = set()
        for quality in Qos:
            for leaf in await self._tree.children(self._path(plan.qos_name(self._policy, quality))):
                uid = plan.uid_of(leaf, self._policy.driver)
                if uid is not None:
                    found.add(uid)
        return frozenset(found)

    async def _count(self, pod: Pod) -> None:
        quality = qos_class(pod)
        counts = quality is Qos.BURSTABLE or (quality is Qos.GUARANTEED and self._policy.memory.keeps)
        if counts and self._counted.get(pod.uid) != pod:
            self._counted[pod.uid] = pod
            await self._update_classes()

    async def _update_classes(self) -> None:
        async with self._classes:
            kept = self.kept
            self._node_limits = plan.keeping(self._node_limits, kept)
            await self._apply(plan.root_name(self._policy), replace(self._node_limits, memory=None))
            burstable = [pod for pod in self._counted.values() if qos_class(pod) is Qos.BURSTABLE]
            for quality, limits in plan.limits_of_qos(burstable, self._sizes, kept).items():
                await self._apply(plan.qos_name(self._policy, quality), limits)

    async def _apply(self, name: plan.Name, limits: plan.Limits) -> None:
        path = self._path(name)
        if self._applied.get(path) == limits:
            return
        with self._timed("update" if path in self._applied else "create"):
            if self._slices is not None:
                await self._slices.ensure(path.rsplit("/", 1)[-1], plan.slice_properties(limits, self._tree.version))
            await self._tree.make(path, plan.writes(limits, self._tree.version, self._sizes))
        self._applied[path] = limits

    async def _remove(self, path: str) -> None:
        self._applied.pop(path, None)
        with self._timed("destroy"):
            if self._slices is not None:
                await self._slices.stop(path.rsplit("/", 1)[-1])
            await self._tree.remove(path)
        log.debug("removed cgroup %s", path)

    def _path(self, name: plan.Name) -> str:
        return plan.path_of(name, self._policy.driver)
