"""CPUs and memory that containers have for themselves: given at admission, kept in files, written into containers.

Admission is decided at once and in memory; the files are written before any container is made with what it got. All
others share the CPUs that are left: when that changes, running containers are moved within milliseconds (and looked
after every cpuManagerReconcilePeriod). Follows cpumanager/cpu_manager.go and internal_container_lifecycle_linux.go of
pkg/kubelet/cm.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from agent.common.model.errors import CriError
from agent.common.model.pods import ContainerState, Json, Pod
from agent.common.model.refusal import Refusal
from agent.common.ports import CheckpointStore
from agent.managers.model.counts import TOOK_BUCKETS, ManagerCounts, Tally
from agent.managers.model.cpus import Cpus, format_cpus
from agent.managers.model.memory_blocks import Block
from agent.managers.plan import memory_blocks, resize
from agent.managers.plan.admission import DeviceHints, Held, Policies, admitted, moved_on, owners, released
from agent.managers.plan.checkpoint import CPU_FILE, encode_cpus, restored_cpus
from agent.managers.plan.cpus import Owner
from agent.managers.plan.hints import Hint, Mask
from agent.managers.plan.memory_checkpoint import MEMORY_FILE, encode_memory, restored_memory
from agent.runtime.model import RuntimeService
from nodelib.clock import Clock, at_most
from nodelib.errors import Invalid, NodewrightError, Permanent

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
    """`running()`: containers that run; `hints(pod, container)`: where its devices could be; `affinity` is filled."""

    running: Callable[[], Iterable[ContainerState]]
    hints: DeviceHints
    affinity: TopologyAffinity


class ResourceManagers:
    """load() first; run() is long-lived. `folder`: where the files are, for messages."""

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
        self.held = Held()
        self._saved = Held()
        self._told: dict[Owner, Cpus] = {}
        self._details: dict[str, str] = {}
        self._tally = Tally()
        self._took = [0] * (len(TOOK_BUCKETS) + 1)
        self._took_sum = 0.0
        self._wake = asyncio.Event()
        self._writing = asyncio.Lock()

    async def load(self) -> None:
        """What the agent before this one gave. Raises Permanent when it cannot be gone on from."""
        cpu_text, memory_text = await self._files.read(CPU_FILE), await self._files.read(MEMORY_FILE)
        with self._restoring("CPU", CPU_FILE):
            found = restored_cpus(self.policies.cpus, cpu_text)
        with self._restoring("memory", MEMORY_FILE):
            self.held = Held(found, restored_memory(self.policies.memory, memory_text))
        await self._write(self.held)

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

    # --- what pods get

    def admit(self, pod: Pod) -> Refusal | None:
        """Give the pod what is to be its alone; None: it has that now. release() takes it back."""
        began = self._clock.monotonic()
        outcome = admitted(self.policies, self.held, pod, self._hooks.hints)
        self._measure(outcome.tally, (self._clock.monotonic() - began) * 1000)
        if outcome.refusal is not None:
            self._details[pod.uid] = outcome.detail
            log.info("pod %s: %s: %s", pod.full_name, outcome.refusal.reason, outcome.detail)
            return outcome.refusal
        self._hooks.affinity.set(pod.uid, outcome.affinity)
        self._set(outcome.held)
        return None

    def adopt(self, pod: Pod) -> None:
        """The pod runs here already: what it has it keeps; what it should have it gets, if that is there."""
        if pod.uid in owners(self.held):
            return
        outcome = admitted(self.policies, self.held, pod, self._hooks.hints)
        if outcome.refusal is not None:
            text = "pod %s runs on as it is: %s (%s)"
            log.warning(text, pod.full_name, outcome.refusal.message, outcome.detail)
            return
        self._set(outcome.held)

    def release(self, uid: str) -> None:
        """Nothing of the pod runs any more."""
        self._set(released(self.held, (uid,)))
        self._told = {owner: had for owner, had in self._told.items() if owner[0] != uid}

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self.release(uid)
        self._details.pop(uid, None)
        self._hooks.affinity.drop(uid)

    def keep(self, uids: Collection[str]) -> None:
        """Release all other pods."""
        gone = owners(self.held) - set(uids)
        if gone:
            log.info("CPUs of pods that are gone are given back: %s", ", ".join(sorted(gone)))
            self._set(released(self.held, gone))

    def detail(self, uid: str) -> str:
        """Of a pod that was refused: what was there, and what it asked for."""
        return self._details.get(uid, "")

    def resize_refusal(self, wanted: Pod, allocated: Pod) -> Refusal | None:
        """Why what the pod has cannot be changed in place."""
        static_cpus, static_memory = self.policies.cpus is not None, self.policies.memory is not None
        return resize.refusal(wanted, allocated, static_cpus=static_cpus, static_memory=static_memory)

    # --- what containers are told

    async def confined(self, pod: Pod, container: Json, resources: Json) -> Json:
        """CRI LinuxContainerResources of a container that is about to be made. Raises Temporary: cannot be kept."""
        owner = pod.uid, container["name"]
        self._set(moved_on(self.held, pod, container["name"]))
        await self.save()
        found = self.sized(pod, container, resources)
        where = self.held.cpus.of(owner)
        if where:
            self._told[owner] = where
            found = {**found, "cpuset_cpus": format_cpus(where)}
        nodes = {node for block in self.held.memory.held.get(owner, ()) for node in block.nodes}
        if nodes:
            found = {**found, "cpuset_mems": ",".join(map(str, sorted(nodes)))}
        return found

    def sized(self, pod: Pod, container: Json, resources: Json) -> Json:
        """The same without a place: who has CPUs for himself is not throttled on them (KEP-2625)."""
        if (pod.uid, container["name"]) in self.held.cpus.held and "cpu_quota" in resources:
            return {**resources, "cpu_quota": -1}
        return resources

    def has_cpus(self, pod: Pod) -> bool:
        """A container of the pod has CPUs for itself."""
        return any(uid == pod.uid for uid, _ in self.held.cpus.held)

    def started(self, uid: str, name: str) -> None:
        """A container runs now: it may have to be elsewhere than when it was made."""
        if (uid, name) in self._told and self._told[uid, name] != self.held.cpus.of((uid, name)):
            self._wake.set()

    async def run(self) -> None:
        """Until cancelled: keep the file and the running containers as they are to be."""
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
        """Return when all that was given is on disk. Raises Temporary."""
        async with self._writing:
            if self._saved is not self.held:
                await self._write(self.held)

    # --- what others see

    @property
    def allocatable_cpus(self) -> Cpus:
        """Those that containers can have alone."""
        return self.policies.cpus.allocatable if self.policies.cpus is not None else frozenset()

    @property
    def allocatable_memory(self) -> tuple[Block, ...]:
        """By NUMA node and kind."""
        return memory_blocks.allocatable_blocks(self.held.memory)

    @property
    def own_memory(self) -> Mapping[Owner, tuple[Block, ...]]:
        return self.held.memory.held

    @property
    def own_cpus(self) -> Mapping[Owner, Cpus]:
        return self.held.cpus.held

    def figures(self) -> ManagerCounts:
        """For a scrape."""
        policy, state = self.policies.cpus, self.held.cpus
        if policy is None:
            return ManagerCounts(self._tally, took=tuple(self._took), took_sum=self._took_sum)
        exclusive = frozenset[int]().union(*state.held.values())
        per_numa = {node: len(exclusive & cpus_there) for node, cpus_there in policy.topology.numas.items()}
        shared = len(policy.free(state))
        return ManagerCounts(self._tally, shared, len(exclusive), per_numa, tuple(self._took), self._took_sum)

    async def _reconcile(self) -> None:
        for one in list(self._hooks.running()):
            owner = one.uid, one.name
            where = self.held.cpus.of(owner)
            if not where or self._told.get(owner) == where:
                continue
            try:
                await self._runtime.update_resources(one.id, {"cpuset_cpus": format_cpus(where)})
                self._told[owner] = where
            except CriError as error:
                log.warning("container %s (%s) stays on other CPUs than %s for now: %s", one.name, one.id, where, error)

    async def _write(self, held: Held) -> None:
        if self.policies.cpus is not None:
            await self._files.write(CPU_FILE, encode_cpus(held.cpus))
        if self.policies.memory is not None:
            await self._files.write(MEMORY_FILE, encode_memory(held.memory))
        self._saved = held

    def _set(self, held: Held) -> None:
        if held is not self.held and held != self.held:
            self.held = held
            self._wake.set()

    def _measure(self, tally: Tally, took: float) -> None:
        self._tally.add(tally)
        self._took[bisect.bisect_left(TOOK_BUCKETS, took)] += 1
        self._took_sum += took
