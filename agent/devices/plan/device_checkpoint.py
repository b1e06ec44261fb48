"""The checkpoint of the device manager: which container has which devices, and what its plugin answered for them."""

from __future__ import annotations

import json
from collections.abc import Mapping

from agent.devices.model.devices import AllocationKey, DeviceAllocation, DeviceGrant, PodDevices, RegisteredPlugin
from nodelib.errors import Invalid
from nodelib.json_values import decode as decode_json

CHECKPOINT = "kubelet_internal_checkpoint"
MOST_BYTES = 64 << 20  # device plugins have the folder of the file, and may leave there what they like
_MOST_VALUES = 4_000_000  # each takes up to 80 bytes of memory
_MOST_LISTED = 1_000_000  # healthy devices that are named; nobody reads them again
Texts = dict[AllocationKey, tuple[DeviceAllocation, str]]
"""What an earlier checkpoint said of allocations."""


def encode(
    allocations: Mapping[AllocationKey, DeviceAllocation],
    plugins: Mapping[str, RegisteredPlugin],
    texts: Texts | None = None,
) -> str:
    """The checkpoint. It has upstream's name and shape, but the answer of Allocate is kept as JSON.

    `texts` is used and renewed: an answer may be long, and all of them are written whenever there is another.
    """
    before, texts = dict(texts or {}), texts if texts is not None else {}
    texts.clear()
    for key, one in sorted(allocations.items(), key=lambda item: (item[0].uid, item[0].container, item[0].resource)):
        known = before.get(key)
        texts[key] = known if known is not None and known[0] is one else (one, _entry(key, one))
    registered = json.dumps(_registered(plugins))
    entries = ", ".join(text for _, text in texts.values())
    return f'{{"Data": {{"PodDeviceEntries": [{entries}], "RegisteredDevices": {registered}}}}}'


def decode(text: str) -> tuple[PodDevices, list[str]]:
    """The allocations, and the resources that were registered. Raises Invalid for a file of another shape."""
    if (values := sum(map(text.count, ",[{"))) > _MOST_VALUES:
        raise Invalid(f"this is not a checkpoint: it has {values} values", step="read checkpoint")
    try:
        data = decode_json(text)["Data"]
        allocations: PodDevices = {}
        for entry in data.get("PodDeviceEntries") or []:
            numa = {int(node): tuple(ids) for node, ids in entry["DeviceIDs"].items()}
            granted = entry["Grant"]
            grant = DeviceGrant(
                envs=dict(granted["envs"]),
                mounts=tuple(granted["mounts"]),
                devices=tuple(granted["devices"]),
                annotations=dict(granted["annotations"]),
                cdi_devices=tuple(granted["cdi_devices"]),
            )
            key = AllocationKey(entry["PodUID"], entry["ContainerName"], entry["ResourceName"])
            allocations[key] = DeviceAllocation(frozenset(one for ids in numa.values() for one in ids), grant, numa)
        return allocations, list(data.get("RegisteredDevices") or {})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Invalid(f"this is not a checkpoint: {type(error).__name__}: {error}", step="read checkpoint") from error


def _registered(plugins: Mapping[str, RegisteredPlugin]) -> dict[str, list[str]]:
    """Each resource, and its healthy devices as far as there is room."""
    found, left = dict[str, list[str]](), _MOST_LISTED
    for name, plugin in sorted(plugins.items()):
        found[name] = sorted(plugin.healthy)[:left]
        left -= len(found[name])
    return found


def _entry(key: AllocationKey, allocation: DeviceAllocation) -> str:
    grant = allocation.grant
    return json.dumps(
        {
            "PodUID": key.uid,
            "ContainerName": key.container,
            "ResourceName": key.resource,
            "DeviceIDs": {str(node): list(ids) for node, ids in sorted(allocation.numa.items())},
            "Grant": {
                "envs": dict(grant.envs),
                "mounts": list(grant.mounts),
                "devices": list(grant.devices),
                "annotations": dict(grant.annotations),
                "cdi_devices": list(grant.cdi_devices),
            },
        }
    )
