"""Mounted volumes that may grow with their claims, as the expander sees them whatever kind they are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from agent.common.model.pods import Pod


@dataclass(frozen=True, slots=True)
class GrowingVolume:
    """A volume that `pod` has mounted: `spec_name` names the PersistentVolume, `claim` the claim.

    Volumes of one `group` grow one after another. `grow(size)` makes it this large (bytes) and raises NodewrightError;
    False: it was unmounted meanwhile.
    """

    pod: Pod
    spec_name: str
    claim: str
    read_only: bool
    group: str
    grow: Callable[[int], Awaitable[bool]]


class GrowingVolumes(Protocol):
    """The volumes of one kind. `new_mount` is set whenever there is a new one."""

    @property
    def new_mount(self) -> asyncio.Event: ...

    def growing(self) -> list[GrowingVolume]: ...
