"""Dynamic resource allocation: ResourceClaims of pods, prepared by DRA drivers of this node."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class ClaimRef:
    """One ResourceClaim, this very one."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class PreparedDevice:
    """A device of a claim that its driver has made ready. `requests`: those of the claim that it answers."""

    driver: str
    pool: str
    device: str
    requests: tuple[str, ...] = ()
    cdi_devices: tuple[str, ...] = ()
    share_id: str = ""


@dataclass(frozen=True, slots=True)
class ClaimState:
    """A claim that pods of this node use. `prepared`: all its drivers have made it ready."""

    ref: ClaimRef
    drivers: tuple[str, ...]
    pods: frozenset[str]
    prepared: bool = False
    devices: tuple[PreparedDevice, ...] = ()
