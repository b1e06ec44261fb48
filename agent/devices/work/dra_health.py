"""Listens to what DRA drivers say of the health of their devices, one stream a driver.

Upstream: HandleWatchResourcesStream of pkg/kubelet/cm/dra/manager.go. Nothing is kept over a restart: drivers tell
everything at the beginning of a stream (upstream clears its file, too, when a stream ends).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Protocol

from agent.common.model.errors import PluginError
from agent.devices.model.dra_health import DeviceKey, Healths
from agent.devices.plan import dra_health as plan
from nodelib.clock import Clock, at_most
from nodelib.json_values import Json
from nodelib.tasks import cancel_and_wait

log = logging.getLogger(__name__)

_RETRY = 5.0  # seconds between two streams
_BREATH = 0.1  # seconds between two looks at what has expired
_IDLE = 3600.0  # seconds

OnChange = Callable[[str, frozenset[DeviceKey]], None]


class HealthSource(Protocol):
    """devices/edge/dra_driver.py DraDriver. Raises PluginError; ends when the driver ends."""

    def watch_health(self, service: str) -> AsyncIterator[list[Json]]: ...


class DraHealth:
    """`on_change(driver, devices)` is called with the devices of which something else is known. run() is long-lived."""

    def __init__(self, clock: Clock, on_change: OnChange) -> None:
        self._clock, self._on_change = clock, on_change
        self._known: dict[str, Healths] = {}
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._news = asyncio.Event()

    @property
    def known(self) -> Mapping[str, Healths]:
        """By driver."""
        return self._known

    async def watch(self, name: str, source: HealthSource, service: str) -> None:
        """Listen to a driver that has registered; `service`: as it offered it, "" for none."""
        await self.forget(name)
        if service:
            self._watches[name] = asyncio.create_task(
                self._listen(name, source, service), name=f"health of the devices of {name}"
            )

    async def forget(self, name: str) -> None:
        """The driver has left; idempotent."""
        task = self._watches.pop(name, None)
        if task is not None:
            await cancel_and_wait(task)
        self._clear(name)

    async def run(self) -> None:
        """Until cancelled: what was not told again in time is not known any more."""
        try:
            while True:
                self._news.clear()
                now = self._clock.monotonic()
                for name, known in list(self._known.items()):
                    self._known[name], expired = plan.after_time(known, now)
                    self._changed(name, expired)
                ends = [end for known in self._known.values() if (end := plan.next_expiry(known)) is not None]
                await at_most(self._clock, max(min(ends, default=now + _IDLE) - now, _BREATH), self._news)
        finally:
            await cancel_and_wait(*self._watches.values())

    async def _listen(self, name: str, source: HealthSource, service: str) -> None:
        said = ""
        while True:
            try:
                async with aclosing(source.watch_health(service)) as reports:  # type: ignore[type-var]
                    async for listed in reports:
                        said = ""
                        await self._reported(name, listed)
                log.info("DRA driver %s tells no more of the health of its devices", name)
            except PluginError as error:
                if error.code == "UNIMPLEMENTED":
                    return  # it offers the service and has none: one that gains it registers again
                if error.code != said:  # one that is away would be told of every five seconds
                    said = error.code
                    log.info("DRA driver %s: the health of its devices is unknown: %s", name, error)
            except Exception:
                log.exception("DRA driver %s: its report of health cannot be read", name)
            finally:
                self._clear(name)
            await self._clock.sleep(_RETRY)

    async def _reported(self, name: str, listed: list[Json]) -> None:
        # In a thread: a report may have many thousand entries.
        now, known = self._clock.monotonic(), self._known.get(name, {})
        self._known[name], changed = await asyncio.to_thread(plan.after_report, known, listed, now)
        self._news.set()
        self._changed(name, changed)
        await self._clock.sleep(plan.pause_after(len(listed), len(self._watches)))

    def _clear(self, name: str) -> None:
        self._changed(name, frozenset(self._known.pop(name, {})))

    def _changed(self, name: str, devices: frozenset[DeviceKey]) -> None:
        if devices:
            self._on_change(name, devices)
