"""The node: admission, pressure and eviction, shutdown, heartbeat, certificates, figures."""

from __future__ import annotations

from tests.mutations.model import Mutation

_EVICTION, _ADMISSION, _NODE = ("unit/agent/eviction",), ("unit/agent/admission",), ("unit/agent/node",)
_SIGNALS, _THRESHOLDS = "agent/eviction/plan/signals.py", "agent/eviction/plan/thresholds.py"
_ADMIT = "agent/admission/plan/admit.py"
_PODS = (*_ADMISSION, "unit/agent/pods/test_pod_rules.py", "unit/agent/pods")

TABLE = (
    Mutation(
        "eviction-memory", "the signal memory.available",
        _SIGNALS,
        "MEMORY_AVAILABLE: Observation(node.memory_available, node.memory_available + node.sample.memory.working_set),",
        "", _EVICTION,
    ),
    Mutation(
        "eviction-allocatable-memory", "the signal allocatableMemory.available",
        _SIGNALS, "if pods is not None and pods.memory.limit:", "if False:", _EVICTION,
    ),
    Mutation(
        "eviction-pid", "the signal pid.available",
        _SIGNALS, "PID_AVAILABLE: Observation(node.max_pid - node.processes, node.max_pid),", "", _EVICTION,
    ),
    Mutation(
        "eviction-node-fs", "the signals nodefs.available and nodefs.inodesFree",
        _SIGNALS, "    _observe_fs(found, node.fs, NODE_FS, NODE_INODES)\n", "", _EVICTION,
    ),
    Mutation(
        "eviction-image-fs", "the signals imagefs.available and imagefs.inodesFree",
        _SIGNALS, "    _observe_fs(found, node.image_fs, IMAGE_FS, IMAGE_INODES)\n", "", _EVICTION,
    ),
    Mutation(
        "eviction-inodes", "the signals *.inodesFree",
        _SIGNALS, "    if fs.inodes:", "    if False:", _EVICTION,
    ),
    Mutation(
        "eviction-soft", "evictionSoftGracePeriod",
        _THRESHOLDS, "for one in present if now - since[one] >= one.grace)", "for one in present)", _EVICTION,
    ),
    Mutation(
        "eviction-reclaim", "evictionMinimumReclaim",
        _THRESHOLDS, "if with_reclaim and one.reclaim is not None:", "if False:", _EVICTION,
    ),
    Mutation(
        "eviction-transition", "evictionPressureTransitionPeriod",
        _THRESHOLDS, "if at == now or now - at < policy.transition}", "if at == now}", _EVICTION,
    ),
    Mutation(
        "eviction-rank", "pods above their requests and of low priority are evicted first",
        "agent/eviction/plan/ranking.py", "return sorted(candidates, key=key)", "return list(candidates)", _EVICTION,
    ),
    Mutation(
        "eviction-critical", "critical pods are not evicted",
        "agent/eviction/work/eviction.py", "if not demand.is_critical(pod)]", "if True]", _EVICTION,
    ),
    Mutation(
        "eviction-images-first", "unused images are removed before a pod is evicted",
        "agent/eviction/work/eviction.py", "        for kind in kinds:\n", "        for kind in ():\n", _EVICTION,
    ),
    Mutation(
        "empty-dir-limit", "sizeLimit of an emptyDir",
        "agent/eviction/plan/local_storage.py", "if limit is not None and (used.used", "if False and (used.used",
        _EVICTION,
    ),
    Mutation(
        "storage-limit-pod", "limits of ephemeral-storage of a pod",
        "agent/eviction/plan/local_storage.py", "if total is not None and (", "if False and (", _EVICTION,
    ),
    Mutation(
        "storage-limit-container", "limits of ephemeral-storage of a container",
        "agent/eviction/plan/local_storage.py", "if bound is not None and (", "if False and (", _EVICTION,
    ),
    Mutation(
        "admission-pressure", "a node under pressure rejects pods",
        _ADMIT, "if node.pressures and not", "if False and not", _PODS,
    ),
    Mutation(
        "admission-shutdown", "a node that is shutting down rejects pods",
        _ADMIT, "    if node.shutting_down:", "    if False:", _PODS,
    ),
    Mutation(
        "admission-resources", "a pod that asks for more than is left is rejected",
        _ADMIT, "if in_use + amount > have:", "if False:", _PODS,
    ),
    Mutation(
        "admission-pods", "maxPods",
        _ADMIT, "if limit is not None and len(beside) + 1 > limit:", "if False:", _PODS,
    ),
    Mutation(
        "admission-affinity", "a pod whose node affinity does not match is rejected",
        _ADMIT, "if not node.name or matches_node_affinity(pod.spec, node.name, node.labels):", "if True:", _PODS,
    ),
    Mutation(
        "admission-host-ports", "a pod whose hostPort is taken is rejected",
        _ADMIT, '        if taken and (ip == "0.0.0.0" or', '        if False and (ip == "0.0.0.0" or', _PODS,
    ),
    Mutation(
        "admission-taints", "a pod that does not tolerate a NoExecute taint is rejected",
        _ADMIT, 'if taint.get("effect") == "NoExecute" and', "if False and", _PODS,
    ),
    Mutation(
        "admission-os", "a pod of another operating system is rejected",
        _ADMIT, 'if os_name not in (None, "linux"):', "if False:", _PODS,
    ),
    Mutation(
        "admission-apparmor", "a pod with a profile is rejected where there is no AppArmor",
        _ADMIT, "if not node.apparmor and security.needs_apparmor(pod):", "if False:", _PODS,
    ),
    Mutation(
        "preemption", "a critical pod preempts others",
        "agent/admission/plan/preempt.py", "    if not demand.is_critical(pod):\n        return refusal(pod, beside",
        "    if True:\n        return refusal(pod, beside", _PODS,
    ),
    Mutation(
        "preemption-order", "BestEffort pods are preempted first",
        "agent/admission/plan/preempt.py",
        "chosen_burst = _closest(burst, _left(lacking, [*best, *chosen_guaranteed]))",
        "chosen_burst = _closest(burst, _left(lacking, chosen_guaranteed))", _PODS,
    ),
    Mutation(
        "graceful-shutdown", "a shutdown of the machine stops the pods",
        "agent/node/work/shutdown.py", "self._parts.pods.evict(plan.termination(pod, group.seconds))", "pass", _NODE,
    ),
    Mutation(
        "shutdown-inhibits", "a shutdown of the machine waits for the pods",
        "agent/node/work/shutdown.py",
        "            await logind.inhibit()\n            self._parts.shutting_down.set(False)",
        "            self._parts.shutting_down.set(False)", _NODE,
    ),
    Mutation(
        "shutdown-by-priority", "shutdownGracePeriodByPodPriority",
        "agent/node/plan/shutdown.py", "found[below[-1] if below else configured[0]].append(pod)",
        "found[configured[0]].append(pod)", _NODE,
    ),
    Mutation(
        "pressure-conditions", "MemoryPressure, DiskPressure and PIDPressure of the Node",
        "agent/node/plan/conditions.py", 'wanted = "True" if kind in inputs.pressures else "False"', 'wanted = "False"',
        _NODE,
    ),
    Mutation(
        "reserved-resources", "allocatable is less than capacity by what is reserved",
        "agent/node/plan/capacity.py",
        "max(ZERO, amount - reserved.get(name, ZERO)) for name, amount in total.items()}\n    huge",
        "amount for name, amount in total.items()}\n    huge", _NODE,
    ),
    Mutation(
        "heartbeat", "the Lease is renewed at an interval",
        "agent/node/work/lease.py", 'wanted["spec"]["renewTime"] = format_micro(self._clock.now())', "pass", _NODE,
    ),
    Mutation(
        "certificate-rotation", "certificates are renewed before they expire",
        "agent/certificates/plan.py", "return begin + (leaf.not_after - begin) * (0.7 + 0.2 * chance)",
        "return leaf.not_after", ("unit/agent/certificates",),
    ),
    Mutation(
        "serving-certificate-addresses", "a new address of the node means a new serving certificate",
        "agent/certificates/work/rotation.py", "or not plan.satisfies(self.pair.leaf, wanted):", "or False:",
        ("unit/agent/certificates",),
    ),
    Mutation(
        "psi-summary", "pressure stall information in /stats/summary",
        "agent/stats/plan/summary.py", '"psi": _psi(sample.cpu.pressure),', "", ("unit/agent/stats",),
    ),
    Mutation(
        "psi-metrics", "container_pressure_* in /metrics/cadvisor",
        "agent/stats/plan/resource_metrics.py", "        *_pressure(groups),\n", "", ("unit/agent/stats",),
    ),
    Mutation(
        "resource-metrics", "container_cpu_usage_seconds_total in /metrics/resource",
        "agent/stats/plan/resource_metrics.py", "return sample.cpu.usage / _NANO", "return 0.0", ("unit/agent/stats",),
    ),
    Mutation(
        "volume-stats", "the usage of volumes in /stats/summary",
        "agent/stats/plan/summary.py", '    if volume.claim:', "    if False:", ("unit/agent/stats",),
    ),
)  # fmt: skip
