"""Topology hints of the device manager, and the devices that match the affinity which the topology manager chose.

Follows topology_hints.go and filterByAffinity of pkg/kubelet/cm/devicemanager.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace

from agent.common.model.pods import Kind, Pod
from agent.common.plan.demand import container_amounts
from agent.common.plan.restart import is_sidecar
from agent.devices.model.devices import AllocationKey, DeviceAllocation, RegisteredPlugin
from agent.devices.plan.devices import Candidates, device_requests, reusable_devices
from agent.managers.plan.hints import Hint, Hints, Mask, mask_of, masks
from nodelib.json_values import Json


def device_hints(
    pod: Pod,
    container: Json | None,
    allocations: Mapping[AllocationKey, DeviceAllocation],
    plugins: Mapping[str, RegisteredPlugin],
    nodes: Collection[int],
) -> Hints:
    """`container` None: for the pod as a whole; `nodes`: the machine's NUMA nodes.

    Resources whose devices name no NUMA node of the machine are left out: a plugin may say anything, and sets of nodes
    are as many as two to the number of nodes.
    """
    if container is None:
        return _of_pod(pod, allocations, plugins, nodes)
    found: dict[str, tuple[Hint, ...]] = {}
    for request in device_requests(pod, _aligned(plugins, nodes)):
        if request.key.container != container["name"]:
            continue
        plugin, has = plugins[request.key.resource], allocations.get(request.key)
        if has is not None:
            found[request.key.resource] = _hints(plugin, nodes, has.ids, frozenset(), request.count, exact=True)
        else:
            free = _free(request.key.resource, plugin, allocations)
            reusable = reusable_devices(pod, request, allocations)
            found[request.key.resource] = _hints(plugin, nodes, free, reusable, request.count)
    return found


def with_affinity(candidates: Candidates, plugin: RegisteredPlugin, affinity: Mask | None) -> Candidates:
    """The candidates on these NUMA nodes; where they are too few, all of those and the rest from elsewhere."""
    if affinity is None:
        return candidates
    near = frozenset(one for one in candidates.available if affinity & mask_of(plugin.devices[one].numa))
    if len(near) >= candidates.needed:
        return replace(candidates, available=near)
    return Candidates(candidates.required | near, candidates.available - near, candidates.needed - len(near))


def _of_pod(
    pod: Pod,
    allocations: Mapping[AllocationKey, DeviceAllocation],
    plugins: Mapping[str, RegisteredPlugin],
    nodes: Collection[int],
) -> Hints:
    found: dict[str, tuple[Hint, ...]] = {}
    for resource, count in _requested_by_pod(pod, _aligned(plugins, nodes)).items():
        has = [one.ids for key, one in allocations.items() if (key.uid, key.resource) == (pod.uid, resource)]
        plugin = plugins[resource]
        if has:
            found[resource] = _hints(plugin, nodes, frozenset[str]().union(*has), frozenset(), count, exact=True)
        else:
            found[resource] = _hints(plugin, nodes, _free(resource, plugin, allocations), frozenset(), count)
    return found


def _requested_by_pod(pod: Pod, resources: Collection[str]) -> dict[str, int]:
    """How many of each resource the pod needs at the same time."""
    sidecars: Counter[str] = Counter()
    peak: Counter[str] = Counter()
    for kind, container in pod.containers(Kind.INIT, Kind.MAIN):
        amounts = container_amounts(container, "limits").items()
        own = Counter({name: int(amount) for name, amount in amounts if name in resources})
        if kind is Kind.MAIN or is_sidecar(kind, container):
            sidecars += own
        else:
            peak |= sidecars + own
    return dict(sorted((peak | sidecars).items()))


def _aligned(plugins: Mapping[str, RegisteredPlugin], nodes: Collection[int]) -> frozenset[str]:
    known = frozenset(nodes)
    return frozenset(
        name
        for name, plugin in plugins.items()
        if any(not known.isdisjoint(one.numa) for one in plugin.devices.values())
    )


def _free(
    resource: str, plugin: RegisteredPlugin, allocations: Mapping[AllocationKey, DeviceAllocation]
) -> frozenset[str]:
    return plugin.healthy.difference(
        *(allocation.ids for key, allocation in allocations.items() if key.resource == resource)
    )


def _hints(
    plugin: RegisteredPlugin,
    nodes: Collection[int],
    free: frozenset[str],
    reusable: frozenset[str],
    count: int,
    *,
    exact: bool = False,
) -> tuple[Hint, ...]:
    if len(free | reusable) < count or (exact and len(free) != count):
        return ()
    near = {name: mask_of(node for node in device.numa if node in nodes) for name, device in plugin.devices.items()}
    theirs = sorted({node for device in plugin.devices.values() for node in device.numa if node in nodes})
    # Counted by where they are: there may be tens of thousands, and hundreds of sets of nodes.
    every, unused = Counter(near.values()), Counter(near.get(one, 0) for one in free)
    near_reusable = [near.get(one, 0) for one in reusable if near.get(one, 0)]
    smallest, found = len(theirs), []
    for mask in masks(theirs):
        if _on(mask, every) >= count:
            smallest = min(smallest, mask.bit_count())
        if all(mask & one for one in near_reusable) and len(near_reusable) + _on(mask, unused) >= count:
            found.append(mask)
    return tuple(Hint(mask, mask.bit_count() == smallest) for mask in found)


def _on(mask: Mask, devices: Mapping[Mask, int]) -> int:
    """How many devices are close to one of these nodes; `devices`: how many by the nodes that they are close to."""
    return sum(count for where, count in devices.items() if mask & where)
