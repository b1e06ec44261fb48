"""The Node's status: what it says, when it must be written again, and the patch that does so.

Follows pkg/kubelet/kubelet_node_status.go and pkg/kubelet/nodestatus/setters.go.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from decimal import Decimal

from agent.common.model.pods import ImageFacts
from agent.common.plan.demand import CPU, PODS
from agent.node.model import NodeEvent, NodeInputs, NodePlace, NodePolicy
from agent.node.plan.capacity import allocatable, capacity
from agent.node.plan.conditions import conditions
from agent.runtime.model import RuntimeHandler
from nodelib.json_values import Json
from nodelib.quantity import format_bytes, format_milli
from nodelib.version import KUBERNETES_VERSION

# Features that the API server and the scheduler require of a node before a pod may rely on them (KEP-5328); sorted.
DECLARED_FEATURES = (
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    "RestartAllContainersOnContainerExits",
)
_MAX_NAMES = 5  # names of one image in the status
_MOST_ADDRESSES, _MOST_RANGES = 64, 16  # of another node that are looked at


def node_status(old: Json, inputs: NodeInputs, policy: NodePolicy, now: float) -> tuple[Json, tuple[NodeEvent, ...]]:
    """The whole new status, and the Events of its changes. What others wrote into it stays."""
    machine = inputs.machine
    status = dict(old)
    total = capacity(machine, policy)
    foreign = {name: text for name, text in (old.get("capacity") or {}).items() if _is_extended(name)}
    status["capacity"] = {**foreign, **_formatted(total)}
    theirs = {name: text for name, text in (old.get("allocatable") or {}).items() if name in foreign}
    status["allocatable"] = {**theirs, **_formatted(allocatable(total, policy))}
    # 0, not absent: the scheduler does not count a resource on a node that does not name it.
    status["capacity"] |= dict.fromkeys(inputs.extras.removed, "0")
    status["allocatable"] |= dict.fromkeys(inputs.extras.removed, "0")
    status["capacity"] |= {name: str(count) for name, count in inputs.extras.capacity.items()}
    status["allocatable"] |= {name: str(count) for name, count in inputs.extras.allocatable.items()}
    if inputs.extras.volumes_in_use or old.get("volumesInUse"):
        status["volumesInUse"] = list(inputs.extras.volumes_in_use)
    status["addresses"] = [{"type": kind, "address": address} for kind, address in inputs.addresses]
    status["nodeInfo"] = _node_info(inputs, policy)
    status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": inputs.port}}
    status["images"] = _images(inputs.images, policy.max_images)
    status["runtimeHandlers"] = [_handler_status(handler) for handler in inputs.runtime.handlers]
    if inputs.runtime.supplemental_groups_policy is not None:
        status["features"] = {"supplementalGroupsPolicy": inputs.runtime.supplemental_groups_policy}
    if inputs.declared_features:
        status["declaredFeatures"] = list(inputs.declared_features)
    else:
        status.pop("declaredFeatures", None)
    status["conditions"], events = conditions(old.get("conditions") or [], inputs, policy.name, now)
    before = (old.get("nodeInfo") or {}).get("bootID")
    if before and before != machine.boot_id:
        message = f"Node {policy.name} has been rebooted, boot id: {machine.boot_id}"
        events = (*events, NodeEvent("Warning", "Rebooted", message))
    return status, events


def changed(old: Json, new: Json) -> bool:
    """Whether `new` differs from `old` in more than heartbeat times."""
    return _comparable(old) != _comparable(new)


def status_patch(old: Json, new: Json) -> Json:
    """Strategic merge patch for nodes/status: the fields that differ, and all conditions."""
    patch: Json = {}
    for key in new:
        if new[key] == old.get(key) or key == "conditions":
            continue
        if key == "addresses":
            # The merge key is the type, which two addresses may share: replace the whole list.
            patch[key] = [*new[key], {"$patch": "replace"}]
        elif isinstance(new[key], dict):
            removed = {name: None for name in old.get(key) or {} if name not in new[key]}
            patch[key] = {**removed, **new[key]}
        else:
            patch[key] = new[key]
    for key in old:
        if key not in new:
            patch[key] = None
    patch["conditions"] = new["conditions"]
    return {"status": patch}


def node_place(node: Json) -> NodePlace:
    """What the pod network needs to know of a Node."""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    cidrs = spec.get("podCIDRs") or ([spec["podCIDR"]] if spec.get("podCIDR") else [])
    # Each node writes its own, as many as an API server stores, and every agent reads them after each change.
    given = (status.get("addresses") or [])[:_MOST_ADDRESSES]
    ips = [entry["address"] for entry in given if entry.get("type") == "InternalIP"]
    meta = node["metadata"]
    return NodePlace(
        str(meta["name"]), tuple(ips), tuple(cidrs[:_MOST_RANGES]), str(meta.get("creationTimestamp") or "")
    )


def _node_info(inputs: NodeInputs, policy: NodePolicy) -> Json:
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
    if policy.names_user_namespace:
        info["runningInUserNamespace"] = machine.user_namespace
    return info


def _comparable(status: Json) -> Json:
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


def _is_extended(name: str) -> bool:
    """Reported by a device plugin or an administrator: it is never ours to remove."""
    return "/" in name and not name.startswith("kubernetes.io/")


def _handler_status(handler: RuntimeHandler) -> Json:
    return {
        "name": handler.name,
        "features": {
            "recursiveReadOnlyMounts": handler.recursive_read_only_mounts,
            "userNamespaces": handler.user_namespaces,
        },
    }
