"""Which devices a container gets, what it gets with them, and what the node says of them.

Follows pkg/kubelet/cm/devicemanager (manager.go, pod_devices.go), with its messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from agent.common.model.pods import Kind, Pod
from agent.common.plan.demand import container_amounts, is_sidecar
from agent.devices.model.devices import Device, DeviceGrant, Holder, Holding, Holdings, Json, Offer
from agent.plugins.model import NodeExtras
from nodelib.errors import Invalid, Permanent

CHECKPOINT = "kubelet_internal_checkpoint"
STOP_GRACE = 300.0  # seconds after which a plugin that has left is forgotten; upstream's endpointStopGracePeriod
_LABEL = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_RESOURCE = re.compile(rf"^[a-z0-9]([-a-z0-9.]{{0,251}}[a-z0-9])?/{_LABEL}$")


@dataclass(frozen=True, slots=True)
class Wish:
    """One container's demand for one resource."""

    holder: Holder
    count: int
    reusable: bool


@dataclass(frozen=True, slots=True)
class Choice:
    """`sure` devices are taken in any case, `missing` more come from `open` ones, as the plugin prefers."""

    sure: frozenset[str] = frozenset()
    open: frozenset[str] = frozenset()
    missing: int = 0


def check_registration(version: str, resource: str) -> None:
    """Raises Invalid for a plugin that cannot be had."""
    if version != "v1beta1":
        raise Invalid(
            f'requested API version "{version}" is not supported by kubelet. Supported version is ["v1beta1"]',
            obj=f"device plugin of {resource}",
        )
    name = resource.partition("/")[0]
    own = name == "kubernetes.io" or name.endswith(".kubernetes.io") or resource.startswith("requests.")
    if own or not _RESOURCE.match(resource):
        raise Invalid(
            f'the ResourceName "{resource}" is invalid',
            obj="device plugin",
            action="Use a domain of your own and a name: example.com/resource.",
        )


def no_options(cause: str, resource: str) -> Permanent:
    """Of a plugin that could not say its options: it is not used."""
    return Permanent(
        f"failed to get device plugin options: {cause}",
        obj=f"device plugin of {resource}",
        step="register",
        action="See the log of the device plugin; it can register again.",
    )


def wishes(pod: Pod, known: Iterable[str]) -> list[Wish]:
    """In the order in which containers get theirs; `known`: resources that plugins offer or that are held."""
    names = set(known)
    return [
        Wish(Holder(pod.uid, container["name"], name), int(amount), kind is Kind.INIT and not is_sidecar(container))
        for kind, container in pod.containers(Kind.INIT, Kind.MAIN)
        for name, amount in sorted(container_amounts(container, "limits").items())
        if name in names and amount > 0
    ]


def choose(wish: Wish, held: Mapping[Holder, Holding], offer: Offer | None, reusable: frozenset[str]) -> Choice | None:
    """None: the container has its devices already. Raises Permanent when they cannot be given.

    `reusable`: devices of the pod's init containers that have ended by then.
    """
    resource, has = wish.holder.resource, held.get(wish.holder)
    if has is not None and len(has.ids) != wish.count:
        raise _refused(
            f'pod "{wish.holder.uid}" container "{wish.holder.container}" changed request for resource "{resource}" '
            f"from {len(has.ids)} to {wish.count}"
        )
    if offer is None:
        raise _refused(f"cannot allocate unregistered device {resource}")
    if not offer.healthy:
        raise _refused(f"no healthy devices present; cannot allocate unhealthy devices {resource}")
    if has is not None:
        if not has.ids <= offer.healthy:
            raise _refused(
                f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}"
            )
        return None
    sure = frozenset(sorted(reusable)[: wish.count])
    missing = wish.count - len(sure)
    taken = {one for holder, holding in held.items() if holder.resource == resource for one in holding.ids}
    free = offer.healthy - taken
    if len(free) < missing:
        raise _refused(
            f"requested number of devices unavailable for {resource}. Requested: {missing}, Available: {len(free)}"
        )
    return Choice(sure, frozenset(free), missing)


def settled(choice: Choice, preferred: Iterable[str]) -> frozenset[str]:
    """The choice with what the plugin prefers, as far as it may have that."""
    wanted = [one for one in preferred if one in choice.open]
    rest = sorted(choice.open.difference(wanted))
    return choice.sure | frozenset([*wanted, *rest][: choice.missing])


def reusable_of(pod: Pod, wish: Wish, held: Mapping[Holder, Holding]) -> frozenset[str]:
    """What earlier init containers of the pod have of the same resource, and none of its other containers."""
    found: set[str] = set()
    for kind, container in pod.containers(Kind.INIT, Kind.MAIN):
        if container["name"] == wish.holder.container:
            break
        theirs = held.get(Holder(pod.uid, container["name"], wish.holder.resource))
        if theirs is not None and kind is Kind.INIT and not is_sidecar(container):
            found |= theirs.ids
        elif theirs is not None:
            found -= theirs.ids
    return frozenset(found)


def holding(ids: frozenset[str], devices: Mapping[str, Device], response: Json) -> Holding:
    """What Allocate's ContainerAllocateResponse makes of it."""
    numa: dict[int, list[str]] = {}
    for one in sorted(ids):
        for node in devices[one].numa or (-1,):
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
    return Holding(ids, grant, {node: tuple(found) for node, found in numa.items()})


def merged(grants: Iterable[DeviceGrant]) -> DeviceGrant:
    """All resources of a container together; of two that contradict each other the first counts."""
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


def node_extras(offers: Mapping[str, Offer], removed: Iterable[str]) -> NodeExtras:
    """Capacity: every device; allocatable: the healthy ones."""
    return NodeExtras(
        capacity={name: len(offer.devices) for name, offer in offers.items()},
        allocatable={name: len(offer.healthy) for name, offer in offers.items()},
        removed=tuple(sorted(set(removed) - set(offers))),
    )


def expired(offers: Mapping[str, Offer], now: float) -> list[str]:
    """Resources whose plugin has been away for too long."""
    return [name for name, offer in offers.items() if not offer.connected and now - offer.left_at >= STOP_GRACE]


def health_status(uid: str, held: Mapping[Holder, Holding], offers: Mapping[str, Offer]) -> dict[str, list[Json]]:
    """allocatedResourcesStatus by container name (KEP-4680)."""
    shown: dict[str, list[Json]] = {}
    for holder, has in sorted(held.items()):
        if holder.uid == uid:
            offer = offers.get(holder.resource, Offer())
            resources = [{"resourceID": one, "health": _health(offer, one)} for one in sorted(has.ids)]
            shown.setdefault(holder.container, []).append({"name": holder.resource, "resources": resources})
    return shown


def encode(held: Mapping[Holder, Holding], offers: Mapping[str, Offer]) -> str:
    """The checkpoint. It has upstream's name and shape; what a plugin granted stands in it as JSON."""
    entries = [
        {
            "PodUID": holder.uid,
            "ContainerName": holder.container,
            "ResourceName": holder.resource,
            "DeviceIDs": {str(node): list(ids) for node, ids in sorted(has.numa.items())},
            "Grant": {
                "envs": dict(has.grant.envs),
                "mounts": list(has.grant.mounts),
                "devices": list(has.grant.devices),
                "annotations": dict(has.grant.annotations),
                "cdi_devices": list(has.grant.cdi_devices),
            },
        }
        for holder, has in sorted(held.items())
    ]
    registered = {name: sorted(offer.healthy) for name, offer in sorted(offers.items())}
    return json.dumps({"Data": {"PodDeviceEntries": entries, "RegisteredDevices": registered}})


def decode(text: str) -> tuple[Holdings, list[str]]:
    """Who held what, and the resources that were offered. Raises Invalid for a file of another shape."""
    try:
        data = json.loads(text)["Data"]
        held: Holdings = {}
        for entry in data.get("PodDeviceEntries") or []:
            numa = {int(node): tuple(ids) for node, ids in entry["DeviceIDs"].items()}
            told = entry["Grant"]
            grant = DeviceGrant(
                envs=dict(told["envs"]),
                mounts=tuple(told["mounts"]),
                devices=tuple(told["devices"]),
                annotations=dict(told["annotations"]),
                cdi_devices=tuple(told["cdi_devices"]),
            )
            holder = Holder(entry["PodUID"], entry["ContainerName"], entry["ResourceName"])
            held[holder] = Holding(frozenset(one for ids in numa.values() for one in ids), grant, numa)
        return held, list(data.get("RegisteredDevices") or {})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Invalid(f"it is no checkpoint: {type(error).__name__}: {error}", step="read checkpoint") from error


def devices_of(listed: Iterable[Mapping[str, Any]]) -> dict[str, Device]:
    """ListAndWatchResponse.devices."""
    return {
        one["ID"]: Device(
            one["ID"],
            one["health"] == "Healthy",
            tuple(node["ID"] for node in (one.get("topology") or {}).get("nodes") or ()),
        )
        for one in listed
    }


def _health(offer: Offer, one: str) -> str:
    # A device that its plugin no longer names is taken for a healthy one, as upstream takes it.
    if one not in offer.devices:
        return "Healthy"
    return "Healthy" if offer.devices[one].healthy else "Unhealthy"


def _refused(text: str) -> Permanent:
    return Permanent(
        f"Allocate failed due to {text}, which is unexpected",
        step="devices",
        action="See that the device plugin runs on this node and that its devices are healthy.",
    )
