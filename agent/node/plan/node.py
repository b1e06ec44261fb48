"""The Node object: what it says and when it must be written again.

Follows pkg/kubelet/kubelet_node_status.go and pkg/kubelet/nodestatus/setters.go, with the reasons
and messages that users and controllers know.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated

from agent.common.model.binding import config, flag
from agent.common.model.eviction import DISK_PRESSURE, MEMORY_PRESSURE, PID_PRESSURE
from agent.common.model.pods import ImageFacts
from agent.common.plan.demand import (
    CPU,
    HUGEPAGES_PREFIX,
    MEMORY,
    PIDS,
    PODS,
    STORAGE,
    ZERO,
    Amounts,
    amounts,
    total_of,
)
from agent.eviction.plan.thresholds import share
from agent.node.model import MachineFacts, NodeEvent, NodeInputs, NodePlace
from agent.runtime.model import RuntimeHandler
from nodelib.errors import Permanent
from nodelib.json_values import Json
from nodelib.kube.times import format_rfc3339, parse_rfc3339
from nodelib.quantity import format_bytes, format_milli
from nodelib.version import KUBERNETES_VERSION

ATTACH_ANNOTATION = "volumes.kubernetes.io/controller-managed-attach-detach"
# What the API server and the scheduler ask of a node before they let a pod rely on it (KEP-5328); sorted.
DECLARED_FEATURES = (
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    "RestartAllContainersOnContainerExits",
)
_PROVIDED_IP_ANNOTATION = "alpha.kubernetes.io/provided-node-ip"
_MAX_NAMES = 5  # names of one image in the status
# A label that an existing Node gets again when it differs; all others are the administrator's.
_DEFAULT_LABELS = (
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
)
# condition type -> ((reason, message, event) when there is, the same when there is none)
_PRESSURES: Mapping[str, tuple[tuple[str, str, str], tuple[str, str, str]]] = {
    MEMORY_PRESSURE: (
        ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available", "NodeHasInsufficientMemory"),
        ("KubeletHasSufficientMemory", "kubelet has sufficient memory available", "NodeHasSufficientMemory"),
    ),
    DISK_PRESSURE: (
        ("KubeletHasDiskPressure", "kubelet has disk pressure", "NodeHasDiskPressure"),
        ("KubeletHasNoDiskPressure", "kubelet has no disk pressure", "NodeHasNoDiskPressure"),
    ),
    PID_PRESSURE: (
        ("KubeletHasInsufficientPID", "kubelet has insufficient PID available", "NodeHasInsufficientPID"),
        ("KubeletHasSufficientPID", "kubelet has sufficient PID available", "NodeHasSufficientPID"),
    ),
}


def _enforces_pods(enforced: Collection[str]) -> bool:
    return "pods" in enforced


@dataclass(frozen=True, slots=True)
class NodePolicy:
    """What the configuration says about the Node; reservations and thresholds as quantities or percentages."""

    name: Annotated[str, flag("hostname-override")]
    labels: Annotated[Mapping[str, str], flag("node-labels")]
    taints: Annotated[tuple[Json, ...], config("registerWithTaints", convert=tuple)] = ()
    provider_id: Annotated[str, config("providerID")] = ""
    controller_attach_detach: Annotated[bool, config("enableControllerAttachDetach")] = True
    max_pods: Annotated[int, config("maxPods")] = 110
    pods_per_core: Annotated[int, config("podsPerCore")] = 0
    max_images: Annotated[int, config("nodeStatusMaxImages")] = 50
    kube_reserved: Annotated[Mapping[str, str] | None, config("kubeReserved")] = None
    system_reserved: Annotated[Mapping[str, str] | None, config("systemReserved")] = None
    eviction_hard: Annotated[Mapping[str, str] | None, config("evictionHard")] = None
    enforce_pods: Annotated[bool, config("enforceNodeAllocatable", convert=_enforces_pods)] = True


def capacity(machine: MachineFacts, policy: NodePolicy) -> Amounts:
    """What the machine has, in the resources that the Node reports."""
    pods = min(machine.cpus * policy.pods_per_core, policy.max_pods) if policy.pods_per_core else policy.max_pods
    found = {
        CPU: Decimal(machine.cpus),
        MEMORY: Decimal(machine.memory),
        STORAGE: Decimal(machine.storage),
        PODS: Decimal(pods),
    }
    for size, total in machine.hugepages.items():
        found[f"{HUGEPAGES_PREFIX}{format_bytes(size)}"] = Decimal(total)
    return found


def allocatable(total: Mapping[str, Decimal], policy: NodePolicy) -> Amounts:
    """Capacity without reservations, hard eviction thresholds and the memory that huge pages take."""
    kept = kept_back(total, policy)
    left = {name: max(ZERO, amount - kept.get(name, ZERO)) for name, amount in total.items()}
    huge = sum((amount for name, amount in total.items() if name.startswith(HUGEPAGES_PREFIX)), ZERO)
    left[MEMORY] = max(ZERO, left[MEMORY] - huge)
    return left


def kept_back(total: Mapping[str, Decimal], policy: NodePolicy) -> Amounts:
    """Reservations and hard eviction thresholds together."""
    return total_of([_reserved(policy), _eviction_reserve(total, policy)])


def enforced(machine: MachineFacts, policy: NodePolicy) -> Amounts:
    """What the kubepods cgroup may use: capacity, without the reservations when "pods" is enforced."""
    total = {**capacity(machine, policy), PIDS: Decimal(machine.pids)}
    if not policy.enforce_pods:
        return total
    kept = _reserved(policy)
    return {name: max(ZERO, amount - kept.get(name, ZERO)) for name, amount in total.items()}


def check_reservations(machine: MachineFacts, policy: NodePolicy) -> None:
    """Raises Permanent when more is reserved than there is."""
    total = capacity(machine, policy)
    kept = kept_back(total, policy)
    over = [f"{name}: {kept[name]} of {total[name]}" for name in total if kept.get(name, ZERO) > total[name]]
    if over:
        raise Permanent(
            f"more is reserved than the machine has ({'; '.join(over)})",
            obj="kubeReserved + systemReserved + evictionHard",
            step="compute Allocatable",
            action="Lower these reservations in the KubeletConfiguration.",
        )


def schedulable_events(old: Json | None, new: Json) -> tuple[NodeEvent, ...]:
    """What is told when the Node is cordoned or uncordoned."""
    before, now = (bool(((node or {}).get("spec") or {}).get("unschedulable")) for node in (old, new))
    if before == now:
        return ()
    word, name = "NodeNotSchedulable" if now else "NodeSchedulable", new["metadata"]["name"]
    return (NodeEvent("Normal", word, f"Node {name} status is now: {word}"),)


def initial_node(policy: NodePolicy, architecture: str, hostname: str) -> Json:
    """A Node to register, without its status."""
    labels = {
        "kubernetes.io/hostname": hostname,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": architecture,
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": architecture,
        **policy.labels,
    }
    node: Json = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": policy.name, "labels": labels}, "spec": {}}
    if policy.controller_attach_detach:
        node["metadata"]["annotations"] = {ATTACH_ANNOTATION: "true"}
    if policy.taints:
        node["spec"]["taints"] = list(policy.taints)
    if policy.provider_id:
        node["spec"]["providerID"] = policy.provider_id
    return node


def metadata_patch(wanted: Json, existing: Json) -> Json:
    """What must change in an existing Node's metadata: default labels and the attach annotation; {} for nothing."""
    labels = wanted["metadata"].get("labels") or {}
    there = existing["metadata"].get("labels") or {}
    patch: Json = {}
    changed = {name: labels[name] for name in _DEFAULT_LABELS if name in labels and there.get(name) != labels[name]}
    if changed:
        patch["labels"] = changed
    notes = existing["metadata"].get("annotations") or {}
    attach = (wanted["metadata"].get("annotations") or {}).get(ATTACH_ANNOTATION)
    drop: Json = {name: None for name in (_PROVIDED_IP_ANNOTATION,) if name in notes}
    if notes.get(ATTACH_ANNOTATION) != attach:
        drop[ATTACH_ANNOTATION] = attach
    if drop:
        patch["annotations"] = drop
    return {"metadata": patch} if patch else {}


def platform_patch(node: Json, architecture: str) -> Json:
    """The two labels that a kubelet keeps true while it runs, as pods are chosen by them; {} when they are.

    Upstream: updateNode in pkg/kubelet/kubelet_node_status.go.
    """
    there = node["metadata"].get("labels") or {}
    wanted = {"kubernetes.io/os": "linux", "kubernetes.io/arch": architecture}
    lost = {name: value for name, value in wanted.items() if there.get(name) != value}
    return {"metadata": {"labels": lost}} if lost else {}


def foreign_owner(existing: Json, lease: Json | None, machine: MachineFacts, now: float) -> str:
    """Why this Node cannot be ours: another machine under the same name keeps its Lease fresh. "" when it can."""
    info = (existing.get("status") or {}).get("nodeInfo") or {}
    theirs = (info.get("machineID", ""), info.get("systemUUID", ""))
    if not any(theirs) or theirs == (machine.machine_id, machine.system_uuid):
        return ""
    spec = (lease or {}).get("spec") or {}
    renewed = spec.get("renewTime")
    age = now - parse_rfc3339(renewed) if renewed else math.inf
    if age > float(spec.get("leaseDurationSeconds") or 40):
        return ""
    return (
        f"another machine (machineID {theirs[0]!r}, ours {machine.machine_id!r}) holds this name "
        f"and renewed its Lease {max(0, age):.0f} s ago"
    )


def node_status(old: Json, inputs: NodeInputs, policy: NodePolicy, now: float) -> tuple[Json, tuple[NodeEvent, ...]]:
    """The whole new status, and the Events that its changes are worth. What others wrote into it stays."""
    machine = inputs.machine
    status = dict(old)
    total = capacity(machine, policy)
    foreign = {name: text for name, text in (old.get("capacity") or {}).items() if _is_extended(name)}
    status["capacity"] = {**foreign, **_formatted(total)}
    theirs = {name: text for name, text in (old.get("allocatable") or {}).items() if name in foreign}
    status["allocatable"] = {**theirs, **_formatted(allocatable(total, policy))}
    # 0, not absent: what no node names is taken for a resource of the cluster, which the scheduler does not count here.
    status["capacity"] |= dict.fromkeys(inputs.extras.removed, "0")
    status["allocatable"] |= dict.fromkeys(inputs.extras.removed, "0")
    status["capacity"] |= {name: str(count) for name, count in inputs.extras.capacity.items()}
    status["allocatable"] |= {name: str(count) for name, count in inputs.extras.allocatable.items()}
    if inputs.extras.volumes_in_use or old.get("volumesInUse"):
        status["volumesInUse"] = list(inputs.extras.volumes_in_use)
    status["addresses"] = [{"type": kind, "address": address} for kind, address in inputs.addresses]
    status["nodeInfo"] = _node_info(inputs)
    status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": inputs.port}}
    status["images"] = _images(inputs.images, policy.max_images)
    status["runtimeHandlers"] = [_handler_status(handler) for handler in inputs.runtime.handlers]
    if inputs.runtime.supplemental_groups_policy is not None:
        status["features"] = {"supplementalGroupsPolicy": inputs.runtime.supplemental_groups_policy}
    if inputs.declared_features:
        status["declaredFeatures"] = list(inputs.declared_features)
    else:
        status.pop("declaredFeatures", None)
    conditions, events = _conditions(old.get("conditions") or [], inputs, policy.name, now)
    status["conditions"] = conditions
    before = (old.get("nodeInfo") or {}).get("bootID")
    if before and before != machine.boot_id:
        message = f"Node {policy.name} has been rebooted, boot id: {machine.boot_id}"
        events = (*events, NodeEvent("Warning", "Rebooted", message))
    return status, events


def changed(old: Json, new: Json) -> bool:
    """Whether `new` says something else than `old`; heartbeat times alone are nothing new."""
    return _essence(old) != _essence(new)


def status_patch(old: Json, new: Json) -> Json:
    """Strategic merge patch for nodes/status: the fields that differ, conditions whole."""
    patch: Json = {}
    for key in new:
        if new[key] == old.get(key) or key == "conditions":
            continue
        if key == "addresses":
            # Two addresses may have one type, which is the merge key: say that the list is whole.
            patch[key] = [*new[key], {"$patch": "replace"}]
        elif isinstance(new[key], dict):
            gone = {name: None for name in old.get(key) or {} if name not in new[key]}
            patch[key] = {**gone, **new[key]}
        else:
            patch[key] = new[key]
    for key in old:
        if key not in new:
            patch[key] = None
    patch["conditions"] = new["conditions"]
    return {"status": patch}


def node_facts(node: Json) -> NodePlace:
    """The part of a Node that the pod network needs."""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    cidrs = spec.get("podCIDRs") or ([spec["podCIDR"]] if spec.get("podCIDR") else [])
    ips = [entry["address"] for entry in status.get("addresses") or [] if entry.get("type") == "InternalIP"]
    return NodePlace(str(node["metadata"]["name"]), tuple(ips), tuple(cidrs))


def lease_object(name: str, node_uid: str, duration: int) -> Json:
    """The node's Lease, owned by its Node (pkg/kubelet/util.SetNodeOwnerFunc), without its times."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": name,
            "namespace": "kube-node-lease",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": node_uid}],
        },
        "spec": {"holderIdentity": name, "leaseDurationSeconds": duration},
    }


def _node_info(inputs: NodeInputs) -> Json:
    machine, runtime = inputs.machine, inputs.runtime
    info: Json = {
        "machineID": machine.machine_id,
        "systemUUID": machine.system_uuid,
        "bootID": machine.boot_id,
        "kernelVersion": machine.kernel_version,
        "osImage": machine.os_image,
        "containerRuntimeVersion": f"{runtime.name}://{runtime.version}",
        "kubeletVersion": KUBERNETES_VERSION,
        # Empty since Kubernetes 1.33 (KEP-4004): a kubelet cannot know it.
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": machine.architecture,
    }
    if machine.swap:
        info["swap"] = {"capacity": machine.swap}
    return info


def _conditions(
    old: Iterable[Json], inputs: NodeInputs, name: str, now: float
) -> tuple[list[Json], tuple[NodeEvent, ...]]:
    """Ours in upstream's order, Ready last; conditions of others keep their place before it."""
    stamp = format_rfc3339(now)
    there = {entry["type"]: entry for entry in old}
    ours = {*_PRESSURES, "Ready", *(one.kind for one in inputs.more)}
    found = [entry for entry in there.values() if entry["type"] not in ours]
    events = []
    for kind, (with_it, without) in _PRESSURES.items():
        wanted = "True" if kind in inputs.pressures else "False"
        reason, message, event = with_it if wanted == "True" else without
        before = there.get(kind)
        if before is None or before.get("status") != wanted:
            events.append(NodeEvent("Normal", event, f"Node {name} status is now: {event}"))
        found.append(_condition(kind, wanted, reason, message, before, stamp))
    for one in inputs.more:
        found.append(_condition(one.kind, one.status, one.reason, one.message, there.get(one.kind), stamp))
    ready, problem = _readiness(inputs)
    before = there.get("Ready")
    if before is not None and before.get("status") != ready:
        event = "NodeReady" if ready == "True" else "NodeNotReady"
        events.append(NodeEvent("Normal", event, f"Node {name} status is now: {event}"))
    reason = "KubeletReady" if ready == "True" else "KubeletNotReady"
    found.append(_condition("Ready", ready, reason, problem or "kubelet is posting ready status", before, stamp))
    return found, tuple(events)


def _readiness(inputs: NodeInputs) -> tuple[str, str]:
    problems = list(dict.fromkeys([*inputs.runtime.problems, *inputs.problems]))
    if not inputs.addresses:
        problems.append("no address of this node is known; give --node-ip")
    if not problems:
        return "True", ""
    return "False", problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"


def _condition(kind: str, status: str, reason: str, message: str, before: Json | None, stamp: str) -> Json:
    since = before.get("lastTransitionTime") if before and before.get("status") == status else None
    return {
        "type": kind,
        "status": status,
        "lastHeartbeatTime": stamp,
        "lastTransitionTime": since or stamp,
        "reason": reason,
        "message": message,
    }


def _essence(status: Json) -> Json:
    plain = {key: value for key, value in status.items() if value not in (None, [], {})}
    plain["conditions"] = sorted(
        (
            {key: value for key, value in entry.items() if key != "lastHeartbeatTime"}
            for entry in status.get("conditions") or []
        ),
        key=lambda entry: str(entry["type"]),
    )
    return plain


def _images(images: Iterable[ImageFacts], most: int) -> list[Json]:
    """Largest first, as upstream sorts them; -1: all."""
    ordered = sorted(images, key=lambda image: (-image.size, image.id))
    shown = ordered if most < 0 else ordered[:most]
    return [
        {"names": [*image.repo_digests, *image.repo_tags][:_MAX_NAMES], "sizeBytes": image.size}
        for image in shown
        if image.repo_digests or image.repo_tags
    ]


def _formatted(listed: Mapping[str, Decimal]) -> dict[str, str]:
    return {name: _text(name, amount) for name, amount in listed.items()}


def _text(name: str, amount: Decimal) -> str:
    if name == CPU:
        return format_milli(math.ceil(amount * 1000))
    return str(int(amount)) if name == PODS else format_bytes(math.floor(amount))


def _reserved(policy: NodePolicy) -> Amounts:
    return total_of([amounts(policy.kube_reserved), amounts(policy.system_reserved)])


def _eviction_reserve(total: Mapping[str, Decimal], policy: NodePolicy) -> Amounts:
    hard = policy.eviction_hard or {}
    pairs = (("memory.available", MEMORY), ("nodefs.available", STORAGE))
    return {name: Decimal(share(hard[signal]).of(int(total[name]))) for signal, name in pairs if signal in hard}


def _is_extended(name: str) -> bool:
    """A resource that a device plugin or an administrator reported: never ours to drop."""
    return "/" in name and not name.startswith("kubernetes.io/")


def _handler_status(handler: RuntimeHandler) -> Json:
    return {
        "name": handler.name,
        "features": {
            "recursiveReadOnlyMounts": handler.recursive_read_only_mounts,
            "userNamespaces": handler.user_namespaces,
        },
    }
