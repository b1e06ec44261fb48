"""Which devices a container gets, what it is created with, and what the node reports about devices.

Follows pkg/kubelet/cm/devicemanager (manager.go, pod_devices.go), and uses its messages.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent.common.model import label_syntax
from agent.common.model.pods import Kind, Pod
from agent.common.plan.demand import container_amounts
from agent.common.plan.extended_resources import mappings
from agent.common.plan.restart import is_sidecar
from agent.devices.model.devices import (
    AllocationKey,
    Device,
    DeviceAllocation,
    DeviceGrant,
    RegisteredPlugin,
)
from agent.plugins.model import NodeExtras, can_be_socket
from nodelib.errors import Invalid, Permanent, Temporary
from nodelib.json_values import Json
from nodelib.text import one_line

MOST_DEVICES = 65_536  # of one resource; further ones are not offered
MOST_RESOURCES = 256  # of all plugins since the agent began: each stays in the Node
MOST_REGISTRATIONS = 32  # at the same time; each is a connection, until the plugin has said its options
CHANGES_A_SECOND, BURST = 10.0, 20  # of the devices of one plugin that are told
_LARGE, _DEVICES_A_SECOND, _LONGEST_PAUSE = 1000, 20_000, 120.0
_OF_LIST, _OF_DEVICE, _SHARE = 0.0005, 8e-6, 0.2  # seconds that one takes, and the part of the loop's time for all
_MOST_OWED = 1.0  # seconds
_NUMA_NODES = 64  # that a machine may have (upstream's bitmask)
STOP_GRACE = 300.0  # seconds after which a stopped plugin is removed; upstream's endpointStopGracePeriod
_RESOURCE = re.compile(f"{label_syntax.PREFIX}{label_syntax.NAME}")


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """One container's request for one resource. `reusable`: later containers of the pod may have the devices too."""

    key: AllocationKey
    count: int
    reusable: bool


@dataclass(frozen=True, slots=True)
class Candidates:
    """All `required` devices are allocated, and `needed` more of the `available` ones, as the plugin prefers."""

    required: frozenset[str] = frozenset()
    available: frozenset[str] = frozenset()
    needed: int = 0


def check_registration(version: str, resource: str) -> None:
    """Raises Invalid for an API version or a resource name that is not supported."""
    if version != "v1beta1":
        raise Invalid(
            f'requested API version "{version}" is not supported by kubelet. Supported version is ["v1beta1"]',
            obj=f"device plugin of {resource}",
        )
    name = resource.partition("/")[0]
    own = name == "kubernetes.io" or name.endswith(".kubernetes.io") or resource.startswith("requests.")
    if own or not _RESOURCE.fullmatch(resource):
        raise Invalid(
            f'the ResourceName "{one_line(resource, 512)}" is invalid',
            obj="device plugin",
            action="Use a domain of your own and a name: example.com/resource.",
        )


def check_room(resource: str, known: Collection[str], registering: int) -> None:
    """Raises Temporary where there are too many resources (`known`: those of the node), or registrations."""
    obj, step = f"device plugin of {one_line(resource, 512)}", "register"
    if registering >= MOST_REGISTRATIONS:
        raise Temporary(f"{registering} device plugins are registering", obj=obj, step=step, action="Try again.")
    if resource not in known and len(known) >= MOST_RESOURCES:
        raise Temporary(
            f"the node has {len(known)} resources of device plugins, which is the most",
            obj=obj,
            step=step,
            action="Find the plugin that registers ever new names, and restart the agent.",
        )


def check_socket(socket: str, resource: str) -> None:
    """Raises Invalid for a path that leaves the folder where plugins listen, or that no socket can have."""
    if not can_be_socket(socket):
        raise Invalid(
            f"the endpoint {one_line(socket, 256)!r} is not a socket in the folder of device plugins",
            obj=f"device plugin of {resource}",
            step="register",
            action="Name the file of the socket, beside kubelet.sock.",
        )


def no_options(cause: str, resource: str) -> Permanent:
    """The error for a plugin that did not answer with its options: it is not registered."""
    return Permanent(
        f"failed to get device plugin options: {cause}",
        obj=f"device plugin of {resource}",
        step="register",
        action="See the log of the device plugin; it can register again.",
    )


def device_requests(pod: Pod, known: Iterable[str]) -> list[DeviceRequest]:
    """In the order in which the containers are served. `known`: resources that plugins offer or that are allocated.

    Resources that a ResourceClaim stands for are no plugin's.
    """
    names, claimed = set(known), {(one.container, one.resource) for one in mappings(pod)}
    return [
        DeviceRequest(
            AllocationKey(pod.uid, container["name"], name),
            int(amount),
            kind is Kind.INIT and not is_sidecar(kind, container),
        )
        for kind, container in pod.containers(Kind.INIT, Kind.MAIN)
        for name, amount in sorted(container_amounts(container, "limits", list(names)).items())
        if name in names and amount > 0 and (container["name"], name) not in claimed
    ]


def candidates_for(
    request: DeviceRequest,
    allocations: Mapping[AllocationKey, DeviceAllocation],
    plugin: RegisteredPlugin | None,
    reusable: frozenset[str],
) -> Candidates | None:
    """None: the container has its devices already. Raises Permanent when they cannot be allocated.

    `reusable`: devices of the pod's init containers that will have ended by then. Upstream: devicesToAllocate.
    """
    resource, has = request.key.resource, allocations.get(request.key)
    if has is not None and len(has.ids) != request.count:
        raise _refused(
            f'pod "{request.key.uid}" container "{request.key.container}" changed request for resource "{resource}" '
            f"from {len(has.ids)} to {request.count}"
        )
    if plugin is None:
        raise _refused(f"cannot allocate unregistered device {resource}")
    if not plugin.healthy:
        raise _refused(f"no healthy devices present; cannot allocate unhealthy devices {resource}")
    if has is not None:
        if not has.ids <= plugin.healthy:
            raise _refused(
                f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}"
            )
        return None
    required = frozenset(sorted(reusable)[: request.count])
    needed = request.count - len(required)
    allocated = {one for key, allocation in allocations.items() if key.resource == resource for one in allocation.ids}
    available = plugin.healthy - allocated
    if len(available) < needed:
        raise _refused(
            f"requested number of devices unavailable for {resource}. Requested: {needed}, Available: {len(available)}"
        )
    return Candidates(required, frozenset(available), needed)


def selected(candidates: Candidates, preferred: Iterable[str]) -> frozenset[str]:
    """The required devices and as many others as are needed, those that the plugin prefers first."""
    wanted = dict.fromkeys(one for one in preferred if one in candidates.available)
    rest = sorted(candidates.available.difference(wanted))
    return candidates.required | frozenset([*wanted, *rest][: candidates.needed])


def reusable_devices(
    pod: Pod, request: DeviceRequest, allocations: Mapping[AllocationKey, DeviceAllocation]
) -> frozenset[str]:
    """Devices of the same resource that earlier init containers of the pod have and none of its other containers."""
    found: set[str] = set()
    for kind, container in pod.containers(Kind.INIT, Kind.MAIN):
        if container["name"] == request.key.container:
            break
        theirs = allocations.get(AllocationKey(pod.uid, container["name"], request.key.resource))
        if theirs is not None and kind is Kind.INIT and not is_sidecar(kind, container):
            found |= theirs.ids
        elif theirs is not None:
            found -= theirs.ids
    return frozenset(found)


def allocation_from(ids: frozenset[str], devices: Mapping[str, Device], response: Json) -> DeviceAllocation:
    """The allocation after the plugin's ContainerAllocateResponse."""
    numa: dict[int, list[str]] = {}
    for one in sorted(ids):
        # Devices of init containers may have left the plugin's list.
        for node in (devices[one].numa if one in devices else ()) or (-1,):
            numa.setdefault(node, []).append(one)
    grant = DeviceGrant(
        envs=response["envs"],
        mounts=tuple(
            {"container_path": one["container_path"], "host_path": one["host_path"], "readonly": one["read_only"]}
            for one in response["mounts"]
        ),
        devices=tuple(dict(one) for one in response["devices"]),
        annotations=response["annotations"],
        cdi_devices=tuple(one["name"] for one in response["cdi_devices"]),
    )
    return DeviceAllocation(ids, grant, {node: tuple(found) for node, found in numa.items()})


def merged(grants: Iterable[DeviceGrant]) -> DeviceGrant:
    """The grants of all resources of a container in one; where two conflict, the first one counts."""
    envs: dict[str, str] = {}
    annotations: dict[str, str] = {}
    mounts: dict[str, Json] = {}
    devices: dict[str, Json] = {}
    names: dict[str, None] = {}
    for one in grants:
        envs = {**one.envs, **envs}
        annotations = {**one.annotations, **annotations}
        mounts = {**{mount["container_path"]: mount for mount in one.mounts}, **mounts}
        devices = {**{device["container_path"]: device for device in one.devices}, **devices}
        names.update(dict.fromkeys(one.cdi_devices))
    return DeviceGrant(envs, tuple(mounts.values()), tuple(devices.values()), annotations, tuple(names))


def node_extras(plugins: Mapping[str, RegisteredPlugin], removed: Iterable[str]) -> NodeExtras:
    """Capacity: every device; allocatable: the healthy ones."""
    return NodeExtras(
        capacity={name: len(plugin.devices) for name, plugin in plugins.items()},
        allocatable={name: len(plugin.healthy) for name, plugin in plugins.items()},
        removed=tuple(sorted(set(removed) - set(plugins))),
    )


def next_expiry(plugins: Mapping[str, RegisteredPlugin], watched: Collection[str]) -> float | None:
    """When the next stopped plugin is to be removed (monotonic seconds); None: no plugin is stopped.

    `watched`: resources whose plugin has registered again, even if it has not listed its devices yet.
    """
    stopped = [plugin for name, plugin in plugins.items() if not plugin.connected and name not in watched]
    return min((plugin.stopped_at + STOP_GRACE for plugin in stopped), default=None)


def expired(plugins: Mapping[str, RegisteredPlugin], watched: Collection[str], now: float) -> list[str]:
    """Resources whose plugin stopped so long ago that they are removed."""
    return [
        name
        for name, plugin in plugins.items()
        if not plugin.connected and name not in watched and now >= plugin.stopped_at + STOP_GRACE
    ]


def health_status(
    uid: str, allocations: Mapping[AllocationKey, DeviceAllocation], plugins: Mapping[str, RegisteredPlugin]
) -> dict[str, list[Json]]:
    """allocatedResourcesStatus by container name (KEP-4680)."""
    shown: dict[str, list[Json]] = {}
    for key, allocation in of_pod(uid, allocations):
        plugin = plugins.get(key.resource, RegisteredPlugin())
        resources = [{"resourceID": one, "health": _health(plugin, one)} for one in sorted(allocation.ids)]
        shown.setdefault(key.container, []).append({"name": key.resource, "resources": resources})
    return shown


def of_pod(
    uid: str, allocations: Mapping[AllocationKey, DeviceAllocation]
) -> list[tuple[AllocationKey, DeviceAllocation]]:
    """Those of one pod, in order. It is asked for each status of each pod, and a node may have thousands."""
    return sorted((key, one) for key, one in allocations.items() if key.uid == uid)


def listed(
    before: RegisteredPlugin, devices: Sequence[Mapping[str, Any]]
) -> tuple[RegisteredPlugin, frozenset[str]] | None:
    """The plugin after it has listed its devices, and those that have changed; None: it is as it was."""
    fresh = devices_of(devices[:MOST_DEVICES])
    if before.connected and fresh == before.devices:
        return None
    changed = frozenset(one for one in fresh if before.devices.get(one) != fresh[one])
    return replace(before, devices=fresh, connected=True), changed


def pause_after(devices: Sequence[object], plugins: int, owed: float) -> tuple[float, float]:
    """Seconds until the next list of a plugin is looked at, one of so many, and those that it owes from then on.

    A list costs all others time, also one that says the same again. `owed`: for earlier lists, which had no pause.
    """
    count = len(devices)
    owed += (_OF_LIST + count * _OF_DEVICE) * plugins / _SHARE
    if is_large(count):
        owed = max(owed, count / _DEVICES_A_SECOND)
    return (min(owed, _LONGEST_PAUSE), 0.0) if is_large(count) or owed > _MOST_OWED else (0.0, owed)


def is_large(devices: int) -> bool:
    """Whether so many devices are worked on in a thread."""
    return devices > _LARGE


def devices_of(listed: Iterable[Mapping[str, Any]]) -> dict[str, Device]:
    """ListAndWatchResponse.devices."""
    return {
        one["ID"]: Device(one["ID"], one["health"] == "Healthy", _numa(one.get("topology") or {})) for one in listed
    }


def _numa(topology: Mapping[str, Any]) -> tuple[int, ...]:
    """The NUMA nodes that the plugin names, without what is none: -1 is what sysfs says where there are no nodes."""
    found = dict.fromkeys(node["ID"] for node in topology.get("nodes") or ())
    return tuple(node for node in found if 0 <= node < _NUMA_NODES)


def _health(plugin: RegisteredPlugin, one: str) -> str:
    # As upstream: a device that its plugin no longer lists counts as healthy.
    if one not in plugin.devices:
        return "Healthy"
    return "Healthy" if plugin.devices[one].healthy else "Unhealthy"


def _refused(text: str) -> Permanent:
    return Permanent(
        f"Allocate failed due to {text}, which is unexpected",
        step="devices",
        action="Check that the device plugin runs on this node and that its devices are healthy.",
    )
