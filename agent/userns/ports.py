"""Protocols of where ranges are remembered and where IDs for pods come from (edge.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class MappingFiles(Protocol):
    """A file of each pod that has users of its own, in the pod's directory: it is removed with that."""

    async def read(self) -> Mapping[str, str | None]:
        """The text of each by the pod's UID; None: it cannot be read."""
        ...

    async def write(self, uid: str, text: str) -> None:
        """A power failure leaves the whole file or none. Raises Temporary."""
        ...

    def path(self, uid: str) -> str: ...


class SubordinateIds(Protocol):
    """The IDs that the machine's administrator has set aside."""

    async def of(self, user: str) -> tuple[str, str] | None:
        """What `getsubids` prints of the user, and of its groups; None: there is no such user or no `getsubids`.

        Raises Temporary: a directory service that does not answer must not count as an empty one.
        """
        ...
