"""Whether this node takes a pod that was bound to it (pkg/kubelet/lifecycle/predicate.go).

The scheduler has decided already: these checks find races, and pods that were bound without the scheduler. A rejected
pod fails for good, so it is rejected only for what is certain.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial

from agent.admission.plan import sysctls
from agent.admission.plan.selectors import matches_node_affinity
from agent.common.model.eviction import MEMORY_PRESSURE, REASON
from agent.common.model.pods import Kind, Pod
from agent.common.model.refusal import Refusal
from agent.common.plan import demand
from agent.common.plan.extended_resources import without_claimed
from agent.containers.plan import security
from nodelib.json_values import Json

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}", re.ASCII)
_STANDARD = ("cpu", "memory", "ephemeral-storage")
_SHORT_OF_MEMORY: Json = {"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"}


@dataclass(frozen=True, slots=True)
class NodeView:
    """The node as admission sees it; `allocatable` as in Node.status. An empty `name`: not known yet.

    `kernel`: (major, minor); `unsafe_sysctls`: the setting allowedUnsafeSysctls; `pressures`: the pressure conditions
    that hold; `shutting_down`: the machine is being shut down; `apparmor`: the kernel enforces AppArmor profiles;
    `compares_taints`: tolerations may be Gt and Lt (gate TaintTolerationComparisonOperators).
    """

    name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Json, ...] = ()
    allocatable: Mapping[str, str] = field(default_factory=dict)
    supplemental_groups_policy: bool = True
    kernel: tuple[int, int] = (0, 0)
    unsafe_sysctls: tuple[str, ...] = ()
    pressures: tuple[str, ...] = ()
    shutting_down: bool = False
    apparmor: bool = True
    compares_taints: bool = False


def refusal(pod: Pod, others: Iterable[Pod], node: NodeView, *, resources: bool = True) -> Refusal | None:
    """Why the pod cannot run beside `others` (the pods that still hold their requests); None: it can.

    `resources` False leaves requests unchecked, for a caller that can preempt (admission/plan/preempt.py).
    """
    if node.shutting_down:
        return Refusal("NodeShutdown", "Pod was rejected as the node is shutting down.")
    if node.pressures and not _tolerates_pressure(pod, node):
        return Refusal(REASON, under_pressure(node.pressures))
    os_name = (pod.spec.get("os") or {}).get("name")
    if os_name not in (None, "linux"):
        return Refusal("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS")
    if (pod.meta.get("labels") or {}).get("kubernetes.io/os", "linux") != "linux":
        return Refusal(
            "PodOSSelectorNodeLabelDoesNotMatch",
            "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
        )
    policy = (pod.spec.get("securityContext") or {}).get("supplementalGroupsPolicy")
    if policy == "Strict" and not node.supplemental_groups_policy:
        text = "SupplementalGroupsPolicy=Strict is not supported in this node"
        return Refusal("SupplementalGroupsPolicyNotSupported", text)
    if not node.apparmor and security.needs_apparmor(pod):
        return Refusal("AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host")
    forbidden = sysctls.refused(pod, node.kernel, node.unsafe_sysctls)
    if forbidden:
        return Refusal(sysctls.FORBIDDEN_REASON, forbidden)
    beside = list(others)
    return (
        (_resources(pod, beside, node) if resources else None)
        or _affinity(pod, node)
        or _name(pod, node)
        or _host_ports(pod, beside)
        or _taints(pod, node)
    )


def _tolerates_pressure(pod: Pod, node: NodeView) -> bool:
    """Critical pods always do; under memory pressure alone also pods that request memory or tolerate its taint."""
    if demand.is_critical(pod):
        return True
    if node.pressures != (MEMORY_PRESSURE,):
        return False
    return demand.qos_class(pod) is not demand.Qos.BEST_EFFORT or _tolerated(pod, _SHORT_OF_MEMORY, node)


def shortages(pod: Pod, others: Iterable[Pod], node: NodeView) -> dict[str, tuple[Decimal, Decimal, Decimal]]:
    """Resource -> (requested, used by `others`, allocatable), for each resource that does not suffice."""
    if not node.allocatable:
        return {}
    beside = list(others)
    capacity = demand.amounts(node.allocatable)
    found: dict[str, tuple[Decimal, Decimal, Decimal]] = {}
    limit = capacity.get("pods")
    if limit is not None and len(beside) + 1 > limit:
        found["pods"] = Decimal(1), Decimal(len(beside)), limit
    # An extended resource that no device plugin reports here was never allocatable.
    known = tuple(dict.fromkeys((*_STANDARD, *capacity)))
    asked = {name: one for name, one in demand.pod_requests(without_claimed(pod), only=known).items() if one != 0}
    # Of the same names for every pod that comes, whatever it asks for: they are added up once.
    used = demand.total_of(demand.counted_requests(other, known) for other in beside) if asked else {}
    for name, amount in asked.items():
        have, in_use = capacity.get(name, Decimal(0)), used.get(name, Decimal(0))
        if in_use + amount > have:
            found[name] = amount, in_use, have
    return found


def _resources(pod: Pod, others: list[Pod], node: NodeView) -> Refusal | None:
    short = shortages(pod, others, node)
    return next((_out_of(name, *amounts) for name, amounts in short.items()), None)


def _out_of(name: str, wanted: Decimal, used: Decimal, capacity: Decimal) -> Refusal:
    scale = 1000 if name == "cpu" else 1
    numbers = (int(wanted * scale), int(used * scale), int(capacity * scale))
    text = "Node didn't have enough resource: {}, requested: {}, used: {}, capacity: {}".format(name, *numbers)
    return Refusal(f"OutOf{name}", text)


def _affinity(pod: Pod, node: NodeView) -> Refusal | None:
    if not node.name or matches_node_affinity(pod.spec, node.name, node.labels):
        return None
    return _predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")


def _name(pod: Pod, node: NodeView) -> Refusal | None:
    if not node.name or pod.spec.get("nodeName") in (None, "", node.name):
        return None
    return _predicate("NodeName", "node(s) didn't match the requested node name")


def _host_ports(pod: Pod, others: list[Pod]) -> Refusal | None:
    in_use: dict[tuple[str, int], set[str]] = {}
    for other in others if any(_ports(pod)) else ():
        for ip, protocol, port in other.once("host ports", partial(_listed_ports, other)):
            in_use.setdefault((protocol, port), set()).add(ip)
    for ip, protocol, port in _ports(pod):
        taken = in_use.get((protocol, port))
        if taken and (ip == "0.0.0.0" or not taken.isdisjoint((ip, "0.0.0.0"))):
            return _predicate("NodePorts", "node(s) didn't have free ports for the requested pod ports")
    return None


def _listed_ports(pod: Pod) -> tuple[tuple[str, str, int], ...]:
    return tuple(_ports(pod))


def _ports(pod: Pod) -> Iterator[tuple[str, str, int]]:
    for _, container in pod.containers(Kind.INIT, Kind.MAIN):
        for port in container.get("ports") or []:
            if port.get("hostPort"):
                yield port.get("hostIP") or "0.0.0.0", port.get("protocol", "TCP"), int(port["hostPort"])


def _taints(pod: Pod, node: NodeView) -> Refusal | None:
    if pod.source != "api":
        return None
    for taint in node.taints:
        if taint.get("effect") == "NoExecute" and not _tolerated(pod, taint, node):
            return _predicate("TaintToleration", "node(s) had taints that the pod didn't tolerate")
    return None


def _tolerated(pod: Pod, taint: Json, node: NodeView) -> bool:
    """ToleratesTaint of k8s.io/component-helpers/scheduling/corev1."""
    for one in pod.spec.get("tolerations") or []:
        if one.get("effect") not in (None, "", taint["effect"]) or one.get("key") not in (None, "", taint["key"]):
            continue
        wanted, value = str(one.get("value") or ""), str(taint.get("value") or "")
        match one.get("operator"):
            case "Exists":
                return True
            case None | "" | "Equal" if one.get("key") and wanted == value:
                return True
            case "Gt" | "Lt" as order if node.compares_taints and _compared(value, order, wanted):
                return True
    return False


def _compared(value: str, order: str, wanted: str) -> bool:
    """Whether a taint's value is greater (Gt) or less than that of a toleration; only whole numbers are either."""
    if not (_INTEGER.fullmatch(value) and _INTEGER.fullmatch(wanted)):
        return False
    left, right = int(value), int(wanted)
    if max(abs(left), abs(right)) >= 1 << 63:
        return False
    return left > right if order == "Gt" else left < right


def _predicate(name: str, text: str) -> Refusal:
    return Refusal(name, f"Predicate {name} failed: {text}")


def under_pressure(conditions: Iterable[str]) -> str:
    """The message of a pod that a node under pressure rejects."""
    return f"The node had condition: [{' '.join(conditions)}]. "
