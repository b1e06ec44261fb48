"""The journal of systemd, by its own command."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from nodelib import command
from nodelib.command import CommandError

log = logging.getLogger(__name__)

_MOST = 4 << 20  # bytes of the list of units
_SECONDS = 30.0


async def units(argv: Sequence[str]) -> str:
    """What the command prints, "" where there is no journal."""
    found = bytearray()
    try:
        async with aclosing(command.stream(argv, timeout=_SECONDS)) as pieces:
            async for piece in pieces:
                found += piece
                if len(found) > _MOST:
                    break
    except CommandError as error:
        log.debug("no journal: %s", error)
        return ""
    return found.decode(errors="replace")


def read(argv: Sequence[str]) -> AsyncGenerator[bytes, None]:
    """What the command prints, errors included. It is killed when the reader goes. Raises CommandError."""
    return command.stream(argv, timeout=_SECONDS)
