"""Dynamic resource allocation: the ResourceClaims of pods, which DRA drivers of this node prepare."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class ClaimRef:
    """One ResourceClaim. The UID tells it from an earlier claim of the same name."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class PreparedDevice:
    """A device of a claim that its driver has prepared. `requests`: the requests of the claim that it satisfies."""

    driver: str
    pool: str
    device: str
    requests: tuple[str, ...] = ()
    cdi_devices: tuple[str, ...] = ()
    share_id: str = ""


@dataclass(frozen=True, slots=True)
class ClaimState:
    """A claim that pods of this node use, by pod UID. `prepared`: all its drivers have prepared it."""

    ref: ClaimRef
    drivers: tuple[str, ...]
    pods: frozenset[str]
    prepared: bool = False
    devices: tuple[PreparedDevice, ...] = ()
