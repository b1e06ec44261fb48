"""Ranges of the host's IDs, and where they come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from agent.common.model.binding import config

UNIT = 65536  # IDs that a container needs: those of its image may be up to 65534, "nobody"


@dataclass(frozen=True, slots=True)
class IdRange:
    """IDs of the host, of users and of groups alike: `length` of them, from `first`."""

    first: int
    length: int

    @property
    def end(self) -> int:
        """The first ID behind it."""
        return self.first + self.length

    def overlaps(self, other: IdRange) -> bool:
        return self.first < other.end and other.first < self.end


@dataclass(frozen=True, slots=True)
class UserNamespaceSettings:
    """`ids_per_pod`: a multiple of UNIT. `max_pods` at once must fit into the IDs that the node has for pods."""

    ids_per_pod: Annotated[int, config("userNamespaces.idsPerPod")] = UNIT
    max_pods: Annotated[int, config("maxPods")] = 110
