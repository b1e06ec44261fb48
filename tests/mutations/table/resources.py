"""CPU, memory, devices: limits, managers, device plugins, dynamic resource allocation."""

from __future__ import annotations

from tests.mutations.model import Mutation

_TESTS = ("unit/agent/resources", "unit/agent/containers")
_LIMITS, _DEMAND = "agent/resources/plan/container_limits.py", "agent/common/plan/demand.py"
_MANAGERS = ("unit/agent/managers",)
_DEVICES = ("unit/agent/devices", "unit/agent/common/test_extended_resources.py")

TABLE = (
    Mutation(
        "cpu-quota", "the CPU limit of a container",
        _LIMITS, 'part["cpu_quota"] = quota(milli(cpu_limit), policy.cpu_period)', 'part["cpu_quota"] = 0', _TESTS,
    ),
    Mutation(
        "memory-limit", "the memory limit of a container",
        _LIMITS, "    if memory_limit:\n", "    if False:\n", _TESTS,
    ),
    Mutation(
        "pids-limit", "podPidsLimit",
        "agent/resources/plan/cgroups.py", "pids = policy.pids if policy.pids > 0 else None", "pids = None", _TESTS,
    ),
    Mutation(
        "huge-pages", "limits of hugepages-*",
        _LIMITS, "huge = {**hugepages(of_pod), **hugepages(limits)}", "huge = dict[int, int]()", _TESTS,
    ),
    Mutation(
        "oom-score", "oom_score_adj by QoS class",
        _LIMITS, "res.oom_score_adj(pod, container, machine.memory)", "0", _TESTS,
    ),
    Mutation(
        "oom-group", "all processes of a container die together of an out of memory (singleProcessOOMKill)",
        _LIMITS, "if not machine.single_process_oom_kill:", "if False:", _TESTS,
    ),
    Mutation(
        "overhead-sandbox", "a RuntimeClass's overhead is told to the runtime",
        _LIMITS, 'overhead = res.amounts(pod.spec.get("overhead"))', "overhead = res.amounts(None)", _TESTS,
    ),
    Mutation(
        "overhead-counted", "a RuntimeClass's overhead counts as a request of the pod",
        _DEMAND, '_add(total, amounts(pod.spec.get("overhead"), only))', "pass", ("unit/agent/common", *_TESTS),
    ),
    Mutation(
        "pod-level-requests", "requests and limits of a whole pod (spec.resources)",
        _DEMAND, '(pod.spec.get("resources") or {}).get(side) or {}', "{}", ("unit/agent/common", *_TESTS),
    ),
    Mutation(
        "pod-level-limit-inherited", "a container without a limit has that of its pod",
        _LIMITS, "limits.get(res.MEMORY) or of_pod.get(res.MEMORY, res.ZERO)", "limits.get(res.MEMORY, res.ZERO)",
        _TESTS,
    ),
    Mutation(
        "swap-limited", "swapBehavior LimitedSwap",
        "agent/resources/plan/swap.py", "if swap.behavior != LIMITED or", "if True or", _TESTS,
    ),
    Mutation(
        "swap-none", "without LimitedSwap, and for critical pods, there is no swap",
        "agent/resources/plan/swap.py", "swap.behavior != LIMITED or demand.is_critical(pod) or", "", _TESTS,
    ),
    Mutation(
        "memory-qos", "memoryReservationPolicy TieredReservation",
        "agent/resources/plan/memory_qos.py", "return self.on and self.reserves", "return False", _TESTS,
    ),
    Mutation(
        "memory-throttling", "memoryThrottlingFactor",
        "agent/resources/plan/memory_qos.py", "if throttling is None or", "if True or", _TESTS,
    ),
    Mutation(
        "reserved-cgroups", "systemReservedCgroup and kubeReservedCgroup",
        "agent/resources/plan/node_allocatable.py", "        if not compressible and one.key not in enforce:",
        "        if True:", _TESTS,
    ),
    Mutation(
        "cpu-manager", "the static CPU manager gives exclusive CPUs",
        "agent/managers/plan/cpus.py", "return int(amount) if amount == int(amount) else 0", "return 0", _MANAGERS,
    ),
    Mutation(
        "cpu-manager-release", "exclusive CPUs return to the shared pool",
        "agent/managers/plan/cpus.py", "shared=state.shared | (cpus - used)", "shared=state.shared", _MANAGERS,
    ),
    Mutation(
        "cpu-manager-full-cores", "the option full-pcpus-only",
        "agent/managers/plan/cpus.py", "    if not policy.options.full_cores:\n", "    if True:\n", _MANAGERS,
    ),
    Mutation(
        "cpu-manager-quota", "a pod with exclusive CPUs has no CPU quota",
        "agent/resources/plan/cgroups.py", "return self if throttled else replace(self, cpu_quota=False)",
        "return self", _TESTS,
    ),
    Mutation(
        "memory-manager", "the static memory manager reserves memory on NUMA nodes",
        "agent/managers/plan/memory_policy.py", "if table is not None and part:\n            tables = {**tables, kind:",
        "if False:\n            tables = {**tables, kind:", _MANAGERS,
    ),
    Mutation(
        "memory-manager-release", "reserved memory is free again when its container is gone",
        "agent/managers/plan/memory_blocks.py", "        free_block(nodes, block)", "        pass", _MANAGERS,
    ),
    Mutation(
        "topology-manager", "the topology manager refuses a pod that cannot be aligned",
        "agent/managers/plan/topology.py", "return best, policy.name == BEST_EFFORT or best.preferred",
        "return best, True", _MANAGERS,
    ),
    Mutation(
        "topology-single-node", "the policy single-numa-node",
        "agent/managers/plan/topology.py",
        "    if policy.name == SINGLE:\n        listed", "    if False:\n        listed", _MANAGERS,
    ),
    Mutation(
        "topology-closest", "the option prefer-closest-numa-nodes",
        "agent/managers/plan/topology.py", "if options.closest and name != SINGLE else {}", "if False else {}",
        _MANAGERS,
    ),
    Mutation(
        "device-plugin", "a container gets what its device plugin answers",
        "agent/devices/work/devices.py", "return plan.merged(allocation.grant for allocation in mine.values())",
        "return plan.merged(())", _DEVICES,
    ),
    Mutation(
        "device-health", "unhealthy devices are given to nobody",
        "agent/devices/plan/devices.py", "available = plugin.healthy - allocated",
        "available = frozenset(plugin.devices) - allocated", _DEVICES,
    ),
    Mutation(
        "device-exclusive", "a device is given to one container",
        "agent/devices/plan/devices.py", "available = plugin.healthy - allocated", "available = plugin.healthy",
        _DEVICES,
    ),
    Mutation(
        "device-pre-start", "PreStartContainer of a device plugin",
        "agent/devices/work/devices.py", "if plugin is not None and plugin.options.pre_start:", "if False:", _DEVICES,
    ),
    Mutation(
        "device-preferred", "GetPreferredAllocation of a device plugin",
        "agent/devices/work/devices.py", "if plugin.options.preferred_allocation and candidates.needed:", "if False:",
        _DEVICES,
    ),
    Mutation(
        "dra", "a container gets the devices of its ResourceClaims",
        "agent/devices/plan/dra.py", "return DeviceGrant(cdi_devices=tuple(dict.fromkeys(names)))",
        "return DeviceGrant()", _DEVICES,
    ),
    Mutation(
        "dra-reserved", "a pod uses only claims that are reserved for it",
        "agent/devices/plan/dra.py", "if pod.uid not in {one", "if False and pod.uid not in {one", _DEVICES,
    ),
    Mutation(
        "dra-request", "a container gets the devices of the one request that it names",
        "agent/devices/plan/dra.py", "if not request or not one.requests or request in", "if True or request in",
        _DEVICES,
    ),
    Mutation(
        "dra-health", "the health of DRA devices in the status",
        "agent/devices/plan/dra_health.py", "        if resources:", "        if False:", _DEVICES,
    ),
    Mutation(
        "dra-extended-resource", "extended resources that a claim stands for are no plugin's",
        "agent/devices/plan/devices.py", 'and (container["name"], name) not in claimed', "", _DEVICES,
    ),
)  # fmt: skip
