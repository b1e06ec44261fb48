"""What a pod's worker tells of its pod: the status is computed from what is known, and handed to the status manager.

Upstream's generateAPIPodStatus and SetPodStatus (pkg/kubelet/kubelet_pods.go). The probes that the status shows are
started here, too: a container that runs has its probes before the status says anything of it.
"""

from __future__ import annotations

from agent.common.model.pods import ContainerState, Pod, RunState
from agent.pods.model.facts import Facts
from agent.pods.plan.mirrors import resumed_status
from agent.pods.plan.start_inputs import ips_for
from agent.pods.plan.status import StatusInputs, pod_status
from agent.pods.plan.waiting import probed
from agent.pods.work.deps import PodDeps
from agent.pods.work.memory import PodMemory
from agent.pods.work.start_notes import StartNotes
from nodelib.json_values import Json


class StatusReport:
    """One of each worker. `created_at`: when the pod came from its source, in monotonic seconds."""

    def __init__(self, deps: PodDeps, memory: PodMemory, notes: StartNotes, created_at: float) -> None:
        self._deps, self._memory, self._notes, self._created_at = deps, memory, notes, created_at

    def send(self, woken_at: float) -> None:
        """The status as it is now. `woken_at`: as of StartNotes.readiness()."""
        self._ensure_probes()
        memory, shown, facts = self._memory, self._shown(), self.facts()
        self._notes.first_probes(facts.probes)
        before, was_ready = memory.status.get("phase") or memory.pod.status.get("phase") or "Pending", memory.is_ready
        memory.status = pod_status(memory.pod, memory.seen, self._inputs(facts))
        memory.note_start(self._deps.clock)
        if memory.is_ready != was_ready:
            self._notes.readiness(woken_at)
        if before == "Pending" and memory.status["phase"] == "Running":
            self._deps.metrics.pod_start_duration.observe(self._deps.clock.monotonic() - self._created_at)
        if shown is not None:
            self._deps.status.manager.set(shown, memory.status)
        if memory.pod.source != "runtime":
            self._deps.status.computed(memory)

    def facts(self) -> Facts:
        """What plans and the status are made from, as it is now."""
        uid = self._memory.pod.uid
        return self._memory.facts(
            self._deps.clock,
            network_ready=self._deps.network_ready(),
            probes=dict(self._deps.status.probes.states(uid)),
            actuated=self._deps.resources.allocations.actuated(uid),
        )

    def _inputs(self, facts: Facts) -> StatusInputs:
        memory = self._memory
        return StatusInputs(
            facts=facts,
            plan=memory.plan,
            host_ips=self._deps.host_ips(),
            previous=memory.status,
            waiting=memory.waiting,
            resize=memory.resize,
            limits=memory.limits,
            devices=self._device_health(),
            in_post_start=frozenset(memory.in_post_start),
        )

    def _device_health(self) -> dict[str, list[Json]]:
        """allocatedResourcesStatus by container name: of plugins' devices, then of claims."""
        resources, pod = self._deps.resources, self._memory.pod
        found = dict(resources.devices.health(pod.uid))
        for name, claimed in resources.claims.health(pod).items():
            found[name] = [*found.get(name, ()), *claimed]
        return found

    def _shown(self) -> Pod | None:
        """The API object that shows the status: the pod's own, or a static pod's mirror. None: there is none."""
        memory = self._memory
        if memory.pod.source == "api":
            return None if memory.gone or memory.confirmed else memory.pod
        mirror = self._deps.status.mirror(memory.pod)
        if mirror is not None and mirror.uid != memory.mirror_uid:
            memory.mirror_uid, memory.status = mirror.uid, resumed_status(memory.status, mirror.status)
            self._deps.status.probes.restore(memory.pod.uid, mirror)
        return mirror

    def _ensure_probes(self) -> None:
        memory = self._memory
        if memory.released:
            return
        names = (name for name in probed(memory.pod) if name not in memory.in_post_start)
        running = {name: one for name in names if (one := memory.seen.latest(name)) and _is_up(one)}
        ips = ips_for(memory.pod, memory.seen.sandbox, self._deps.host_ips())
        self._deps.status.probes.ensure(memory.pod, running, ips)


def _is_up(one: ContainerState) -> bool:
    return one.state is RunState.RUNNING
