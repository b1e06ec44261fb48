"""The runtime says which cgroup driver it uses (KubeletCgroupDriverFromCRI): both must use the same.

What cmd/kubelet/app/server.go does in getCgroupDriverFromCRI, but for the end: upstream's kubelet gives up when the
runtime does not answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from agent.common.model.errors import CriError
from agent.settings import Settings
from nodelib.backoff import Backoff
from nodelib.clock import Clock

log = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 1.0  # seconds between two questions
_LONGEST = 6.0  # seconds; by then a runtime that starts together with the agent answers


class AsksDriver(Protocol):
    """The call of the runtime's client that is needed."""

    async def cgroup_driver(self) -> str:
        """ "systemd", "cgroupfs" or "": it does not say. Raises CriError."""
        ...


async def with_driver_of(
    runtime: AsksDriver, settings: Settings, clock: Clock, on_old: Callable[[], None] = lambda: None
) -> Settings:
    """The settings with the runtime's driver; the configured one, if it does not say.

    `on_old()`: the runtime is older than the question.
    """
    configured = settings.cgroups.pods.driver
    found = await _asked(runtime, clock, configured, on_old)
    if found in ("", configured):
        return settings
    log.warning("cgroupDriver: the runtime uses %s, so the configured %s is not used", found, configured)
    cgroups = replace(settings.cgroups, pods=replace(settings.cgroups.pods, driver=found))
    return replace(settings, cgroups=cgroups, effective={**settings.effective, "cgroupDriver": found})


async def _asked(runtime: AsksDriver, clock: Clock, configured: str, on_old: Callable[[], None]) -> str:
    pauses, until = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE), clock.monotonic() + _LONGEST
    while True:
        try:
            return await runtime.cgroup_driver()
        except CriError as error:
            if error.code == "UNIMPLEMENTED":
                on_old()
                log.info("the runtime does not say which cgroup driver it uses: the configured %s is used", configured)
                return ""
            if clock.monotonic() >= until:
                log.warning(
                    "the runtime does not answer which cgroup driver it uses, so the configured %s is used:"
                    " compare it with the runtime's configuration: %s",
                    configured,
                    error,
                )
                return ""
        await clock.sleep(pauses.next())
