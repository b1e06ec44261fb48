"""What DRA drivers say of the health of their devices, and what pods' statuses show of it.

Follows pkg/kubelet/cm/dra (healthinfo.go, manager.go: UpdateAllocatedResourcesStatus) and KEP-4680.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from agent.common.model.pods import Kind, Pod
from agent.devices.model.dra import ClaimState, PreparedDevice
from agent.devices.model.dra_health import DeviceHealth, DeviceKey, Healths
from agent.devices.plan.dra import claims_of, container_claims, devices_for
from nodelib.json_values import Json

SERVICES = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")  # the newest first
UNKNOWN = "Unknown"
_STATUSES = {1: "Healthy", 2: "Unhealthy"}
_TIMEOUT = 30.0  # seconds for which a report counts that does not say for how long
_LONGEST_TIMEOUT = 10 * 365 * 86400.0
_MOST_DEVICES = 16384  # of one driver
_MOST_SHOWN = 1000  # devices in the status of one pod, which may name a claim as often as it likes
_LONGEST_MESSAGE, _LONGEST_NAME = 1024, 253  # characters
_SHORTEST_PAUSE = 0.1  # seconds between two reports of a driver that are taken
_OF_ENTRY, _SHARE = 15e-6, 0.2  # seconds that one takes, and the part of a processor's time for those of all drivers
_LONGEST_PAUSE = 30.0  # seconds


def service_of(versions: Collection[str]) -> str:
    """The newest health service that a driver offers, "" for none."""
    return next((one for one in SERVICES if one in versions), "")


def after_report(known: Healths, listed: Iterable[Json], now: float) -> tuple[Healths, frozenset[DeviceKey]]:
    """What is known after a report, and which devices changed for those who look.

    `listed`: DeviceHealth entries of the whole driver. Devices that it leaves out stay as they are until their time is
    up. `now` in monotonic seconds.
    """
    kept, expired = after_time(known, now)
    found, changed = dict(kept), set(expired)
    for entry in listed:
        device = entry.get("device") or {}
        key = str(device.get("pool_name")), str(device.get("device_name"))
        if max(map(len, key)) > _LONGEST_NAME or (key not in found and len(found) >= _MOST_DEVICES):
            continue
        fresh = _health(entry, now)
        if fresh.says(known.get(key)):
            changed.discard(key)
        else:
            changed.add(key)
        found[key] = fresh
    return found, frozenset(changed)


def pause_after(entries: int, drivers: int) -> float:
    """Seconds until the next report of a driver is taken, one of so many, after one with so many entries.

    They are read in threads, but these take the interpreter from the event loop: all of them together have a share.
    """
    return min(max(_SHORTEST_PAUSE, entries * _OF_ENTRY * drivers / _SHARE), _LONGEST_PAUSE)


def after_time(known: Healths, now: float) -> tuple[Healths, frozenset[DeviceKey]]:
    """What is known now, and the devices that nobody has told of for too long."""
    expired = frozenset(key for key, health in known.items() if health.until <= now)
    return ({key: health for key, health in known.items() if key not in expired} if expired else known), expired


def next_expiry(known: Healths) -> float | None:
    """When after_time() forgets the next device (monotonic seconds)."""
    return min((health.until for health in known.values()), default=None)


def users_of(states: Iterable[ClaimState], driver: str, devices: Collection[DeviceKey]) -> frozenset[str]:
    """UIDs of the pods that use one of these devices of a driver."""
    return frozenset(
        uid
        for state in states
        if any(one.driver == driver and (one.pool, one.device) in devices for one in state.devices)
        for uid in state.pods
    )


def health_status(
    pod: Pod, states: Iterable[ClaimState], healths: Mapping[str, Healths], *, messages: bool
) -> dict[str, list[Json]]:
    """allocatedResourcesStatus by container name. `healths` by driver; `messages`: whether they are shown."""
    shown: dict[str, list[Json]] = {}
    claims, left = claims_of(pod, states), _MOST_SHOWN
    every = ((one["name"], claim) for _, one in pod.containers(Kind.MAIN) for claim in container_claims(one))
    for container, claim in every if claims else ():
        state = claims.get(claim["name"])
        devices = devices_for(state, claim.get("request") or "") if state is not None else []
        left -= len(devices)
        if left < 0:
            break
        resources = {_id(one): _shown(one, healths, messages=messages) for one in reversed(devices)}
        if resources:
            name = f"claim:{claim['name']}" + (f"/{claim['request']}" if claim.get("request") else "")
            listed = [resources[key] for key in dict.fromkeys(map(_id, devices))]
            shown.setdefault(container, []).append({"name": name, "resources": listed})
    return shown


def _shown(device: PreparedDevice, healths: Mapping[str, Healths], *, messages: bool) -> Json:
    known = healths.get(device.driver, {}).get((device.pool, device.device))
    entry = {"resourceID": _id(device), "health": known.status if known is not None else UNKNOWN}
    return {**entry, "message": known.message} if messages and known is not None and known.message else entry


def _id(device: PreparedDevice) -> str:
    return device.cdi_devices[0] if device.cdi_devices else f"{device.driver}/{device.pool}/{device.device}"


def _health(entry: Mapping[str, Any], now: float) -> DeviceHealth:
    asked = entry.get("health_check_timeout_seconds") or 0
    timeout = min(float(asked), _LONGEST_TIMEOUT) if asked > 0 else _TIMEOUT
    message = str(entry.get("message") or "")
    if len(message.encode()) > _LONGEST_MESSAGE:
        message = message.encode()[: _LONGEST_MESSAGE - 3].decode(errors="ignore") + "..."
    return DeviceHealth(_STATUSES.get(entry.get("health") or 0, UNKNOWN), message, timeout, now + timeout)
