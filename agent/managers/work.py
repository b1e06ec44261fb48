"""The CPU, memory and topology managers at work: they admit pods, keep checkpoints and set the cpusets of containers.

A pod is admitted at once and in memory; the checkpoints are written before any of its containers is created. All
containers without exclusive CPUs run on the shared pool: when it changes, running containers are updated within
milliseconds, and checked again every cpuManagerReconcilePeriod. Follows cpumanager/cpu_manager.go and
internal_container_lifecycle_linux.go of pkg/kubelet/cm.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from agent.common.model.errors import CriError
from agent.common.model.pods import ContainerState, Pod
from agent.common.model.refusal import Refusal
from agent.common.ports import CheckpointStore
from agent.managers.model.counts import DURATION_BUCKETS, AdmissionCounts, ManagerCounts
from agent.managers.model.cpus import Cpus, format_cpus
from agent.managers.model.memory_blocks import Block
from agent.managers.plan import admission, memory_blocks
from agent.managers.plan.admission import DeviceHints, ManagerState, Policies
from agent.managers.plan.checkpoint import CPU_FILE, encode_cpus, restored_cpus
from agent.managers.plan.cpus import Owner
from agent.managers.plan.hints import Hint, Mask
from agent.managers.plan.memory_checkpoint import MEMORY_FILE, encode_memory, restored_memory
from agent.runtime.ports import RuntimeService
from nodelib.clock import Clock, at_most
from nodelib.errors import Invalid, NodewrightError, Permanent
from nodelib.json_values import Json

log = logging.getLogger(__name__)


class TopologyAffinity:
    """Which NUMA nodes were chosen for each container when its pod was admitted. Made before those who write and ask.

    Upstream: the store of pkg/kubelet/cm/topologymanager (GetAffinity).
    """

    def __init__(self) -> None:
        self._hints: dict[str, Mapping[str, Hint]] = {}

    def set(self, uid: str, hints: Mapping[str, Hint]) -> None:
        """`hints` by container name."""
        self._hints[uid] = hints

    def of(self, uid: str, container: str) -> Mask | None:
        """None: any."""
        hint = self._hints.get(uid, {}).get(container)
        return hint.affinity if hint is not None else None

    def drop(self, uid: str) -> None:
        self._hints.pop(uid, None)


@dataclass(frozen=True, slots=True)
class ResourceManagerHooks:
    """`running()`: running containers of the node; `hints(pod, container, nodes)`: those of the device manager;
    `affinity`: the store of what was chosen.
    """

    running: Callable[[], Iterable[ContainerState]]
    hints: DeviceHints
    affinity: TopologyAffinity


class ResourceManagers:
    """Call load() first; run() is long-lived. `folder`: of the checkpoints, for messages; `period` in seconds."""

    def __init__(
        self,
        policies: Policies,
        files: CheckpointStore,
        folder: str,
        runtime: RuntimeService,
        clock: Clock,
        period: float,
        hooks: ResourceManagerHooks,
    ) -> None:
        self.policies, self._files, self._folder = policies, files, folder
        self._runtime, self._clock, self._period = runtime, clock, period
        self._hooks = hooks
        self.state = ManagerState()
        self._saved = ManagerState()
        self._cpusets: dict[Owner, Cpus] = {}  # those that the runtime was given last
        self._details: dict[str, str] = {}
        self._counts = AdmissionCounts()
        self._durations = [0] * (len(DURATION_BUCKETS) + 1)
        self._duration_sum = 0.0
        self._wake = asyncio.Event()
        self._writing = asyncio.Lock()

    async def load(self) -> None:
        """Restore the state from the checkpoints. Raises Permanent when that is not possible."""
        cpu_text, memory_text = await self._files.read(CPU_FILE), await self._files.read(MEMORY_FILE)
        with self._restoring("CPU", CPU_FILE):
            found = restored_cpus(self.policies.cpus, cpu_text)
        with self._restoring("memory", MEMORY_FILE):
            self.state = ManagerState(found, restored_memory(self.policies.memory, memory_text))
        await self._write(self.state)

    @contextlib.contextmanager
    def _restoring(self, manager: str, name: str) -> Iterator[None]:
        path = f"{self._folder}/{name}"
        try:
            yield
        except Invalid as error:
            raise Permanent(
                f"could not restore state from checkpoint: {error.message}, please drain this node and delete the "
                f'{manager} manager checkpoint file "{path}" before restarting Kubelet',
                obj=path,
                step=f"read {manager} manager state",
            ) from error

    # --- pods

    def admit(self, pod: Pod) -> Refusal | None:
        """Assign exclusive CPUs and NUMA memory to the pod, until release(). None: it is admitted."""
        began = self._clock.monotonic()
        result = admission.admit_pod(self.policies, self.state, pod, self._hooks.hints)
        self._measure(result.counts, (self._clock.monotonic() - began) * 1000)
        if result.refusal is not None:
            self._details[pod.uid] = result.detail
            log.info("pod %s: %s: %s", pod.full_name, result.refusal.reason, result.detail)
            return result.refusal
        self._hooks.affinity.set(pod.uid, result.affinity)
        self._set(result.state)
        return None

    def adopt(self, pod: Pod) -> None:
        """The pod is running already: it keeps what it has, or gets what it should have if that is free."""
        if pod.uid in admission.pod_uids(self.state):
            return
        result = admission.admit_pod(self.policies, self.state, pod, self._hooks.hints)
        if result.refusal is not None:
            text = "pod %s keeps running without exclusive resources: %s (%s)"
            log.warning(text, pod.full_name, result.refusal.message, result.detail)
            return
        self._set(result.state)

    def release(self, uid: str) -> None:
        """No container of the pod is running any more: free what it has."""
        self._set(admission.release_pods(self.state, (uid,)))
        self._cpusets = {owner: cpus for owner, cpus in self._cpusets.items() if owner[0] != uid}

    def remove(self, uid: str) -> None:
        """The pod is gone."""
        self.release(uid)
        self._details.pop(uid, None)
        self._hooks.affinity.drop(uid)

    def keep(self, uids: Collection[str]) -> None:
        """Release all pods but these."""
        gone = admission.pod_uids(self.state) - set(uids)
        if gone:
            log.info("exclusive resources of pods that are gone are released: %s", ", ".join(sorted(gone)))
            self._set(admission.release_pods(self.state, gone))

    def detail(self, uid: str) -> str:
        """For a refused pod: what it requested and what was free."""
        return self._details.get(uid, "")

    def resize_refusal(self, wanted: Pod, allocated: Pod) -> Refusal | None:
        """Why the pod cannot be resized in place; None: the managers do not object."""
        return admission.resize_refusal(wanted, allocated, self.policies)

    # --- containers

    async def pre_create(self, pod: Pod, container: Json, resources: Json) -> Json:
        """CRI LinuxContainerResources with the cpuset of a container that is about to be created.

        Raises Temporary when the checkpoints cannot be written. Upstream: PreCreateContainer.
        """
        owner = pod.uid, container["name"]
        self._set(admission.release_init_memory(self.state, pod, container["name"]))
        await self.save()
        found = self.unthrottled(pod, container, resources)
        cpus = self.state.cpus.of(owner)
        if cpus:
            self._cpusets[owner] = cpus
            found = {**found, "cpuset_cpus": format_cpus(cpus)}
        nodes = {node for block in self.state.memory.assignments.get(owner, ()) for node in block.nodes}
        if nodes:
            found = {**found, "cpuset_mems": ",".join(map(str, sorted(nodes)))}
        return found

    def unthrottled(self, pod: Pod, container: Json, resources: Json) -> Json:
        """The resources without a CPU quota if the container has exclusive CPUs (KEP-2625)."""
        if (pod.uid, container["name"]) in self.state.cpus.assignments and "cpu_quota" in resources:
            return {**resources, "cpu_quota": -1}
        return resources

    def has_exclusive_cpus(self, pod: Pod) -> bool:
        """Whether any container of the pod has exclusive CPUs."""
        return any(uid == pod.uid for uid, _ in self.state.cpus.assignments)

    def started(self, uid: str, name: str) -> None:
        """A container is running now: its cpuset may have changed since it was created."""
        if (uid, name) in self._cpusets and self._cpusets[uid, name] != self.state.cpus.of((uid, name)):
            self._wake.set()

    async def run(self) -> None:
        """Until cancelled: keep the checkpoints and the cpusets of running containers up to date."""
        while True:
            if self.policies.cpus is not None:
                await at_most(self._clock, self._period, self._wake)
            else:
                await self._wake.wait()
            self._wake.clear()
            try:
                await self.save()
            except NodewrightError as error:
                log.warning("%s", error)
            if self.policies.cpus is not None:
                await self._reconcile()

    async def save(self) -> None:
        """Return when the whole state is on disk. Raises Temporary."""
        async with self._writing:
            if self._saved is not self.state:
                await self._write(self.state)

    # --- what others read

    @property
    def allocatable_cpus(self) -> Cpus:
        """All CPUs that can be assigned exclusively."""
        return self.policies.cpus.allocatable if self.policies.cpus is not None else frozenset()

    @property
    def allocatable_memory(self) -> tuple[Block, ...]:
        """All memory that can be assigned, by NUMA node and kind."""
        return memory_blocks.allocatable_blocks(self.state.memory)

    @property
    def assigned_memory(self) -> Mapping[Owner, tuple[Block, ...]]:
        """By pod UID and container name."""
        return self.state.memory.assignments

    @property
    def exclusive_cpus(self) -> Mapping[Owner, Cpus]:
        """By pod UID and container name."""
        return self.state.cpus.assignments

    def counts(self) -> ManagerCounts:
        """For a scrape."""
        policy, state = self.policies.cpus, self.state.cpus
        if policy is None:
            return ManagerCounts(self._counts, durations=tuple(self._durations), duration_sum=self._duration_sum)
        exclusive = frozenset[int]().union(*state.assignments.values())
        per_numa = {node: len(exclusive & cpus_there) for node, cpus_there in policy.topology.numas.items()}
        shared, durations = len(policy.free(state)), tuple(self._durations)
        return ManagerCounts(self._counts, shared, len(exclusive), per_numa, durations, self._duration_sum)

    async def _reconcile(self) -> None:
        for one in list(self._hooks.running()):
            owner = one.uid, one.name
            cpus = self.state.cpus.of(owner)
            if not cpus or self._cpusets.get(owner) == cpus:
                continue
            try:
                await self._runtime.update_resources(one.id, {"cpuset_cpus": format_cpus(cpus)})
                self._cpusets[owner] = cpus
            except CriError as error:
                text = "container %s (%s) cannot be moved to the CPUs %s for now: %s"
                log.warning(text, one.name, one.id, format_cpus(cpus), error)

    async def _write(self, state: ManagerState) -> None:
        if self.policies.cpus is not None:
            await self._files.write(CPU_FILE, encode_cpus(state.cpus))
        if self.policies.memory is not None:
            await self._files.write(MEMORY_FILE, encode_memory(state.memory))
        self._saved = state

    def _set(self, state: ManagerState) -> None:
        if state is not self.state and state != self.state:
            self.state = state
            self._wake.set()

    def _measure(self, counts: AdmissionCounts, milliseconds: float) -> None:
        self._counts.add(counts)
        self._durations[bisect.bisect_left(DURATION_BUCKETS, milliseconds)] += 1
        self._duration_sum += milliseconds
