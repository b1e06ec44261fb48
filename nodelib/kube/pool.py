"""The connections of a client, which can be replaced while calls are under way."""

from __future__ import annotations

import aiohttp


class Pool:
    """The connections between two reconnects. Each call enters it; once retired, the last call to leave closes it."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session
        self.streams: set[aiohttp.StreamReader] = set()
        self.retired = False
        self._users = 0

    async def __aenter__(self) -> Pool:
        self._users += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        self._users -= 1
        await self._close_unused()

    async def retire(self) -> None:
        """Take no new calls and end watches: closing the session alone would leave their readers waiting forever."""
        self.retired = True
        for stream in list(self.streams):
            stream.set_exception(aiohttp.ClientConnectionError("the client reconnects"))
        await self._close_unused()

    async def _close_unused(self) -> None:
        if self.retired and not self._users:
            await self.session.close()
