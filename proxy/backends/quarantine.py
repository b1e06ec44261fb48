"""A port whose rules the kernel refuses is set aside, so that all others are served."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace

from nodelib.errors import NodewrightError
from nodelib.flows import UdpFlow
from proxy.backends.base import Backend, SyncReport
from proxy.model import Desired, NodeFacts, ServicePortName

log = logging.getLogger(__name__)

_MOST = 20  # ports set aside in one sync: with more the fault is not that of a port


class Quarantine:
    """A backend around another. What is set aside is tried again when it changes, and at every full sync."""

    def __init__(self, inner: Backend) -> None:
        self._inner = inner
        self._aside: dict[ServicePortName, str] = {}
        self._told: dict[ServicePortName, str] = {}

    @property
    def mode(self) -> str:
        return self._inner.mode

    @property
    def ready(self) -> bool:
        return self._inner.ready

    @property
    def aside(self) -> dict[ServicePortName, str]:
        """Ports that are not served, and why."""
        return dict(self._aside)

    def node_changed(self, node: NodeFacts) -> bool:
        return self._inner.node_changed(node)

    def service_cidrs_changed(self, cidrs: tuple[str, ...]) -> bool:
        return self._inner.service_cidrs_changed(cidrs)

    async def sync(self, desired: Desired, changed: frozenset[ServicePortName] | None) -> SyncReport:
        """Raises what the inner one raises, when no port is to blame."""
        self._aside = {name: why for name, why in self._aside.items() if changed is not None and name not in changed}
        for _ in range(_MOST):
            try:
                report = await self._inner.sync(self._served(desired), changed)
            except NodewrightError as error:
                culprit = self._inner.blame(error, desired)
                if culprit is None or culprit in self._aside:
                    raise
                # What somebody else did to our rules may be the cause: a full sync mends that, and then it counts.
                if changed is None:
                    self._set_aside(culprit, str(error))
                changed = None
            else:
                self._told = {name: why for name, why in self._told.items() if name in self._aside}
                return report
        return replace(await self._inner.sync(self._served(desired), None), full=True)

    async def audit(self, *, deep: bool) -> list[str]:
        return await self._inner.audit(deep=deep)

    def stale_flows(self, desired: Desired, flows: Iterable[UdpFlow]) -> list[UdpFlow]:
        return self._inner.stale_flows(desired, flows)

    def blame(self, error: NodewrightError, desired: Desired) -> ServicePortName | None:
        return self._inner.blame(error, desired)

    async def cleanup(self) -> None:
        await self._inner.cleanup()

    def _served(self, desired: Desired) -> Desired:
        if not self._aside:
            return desired
        return replace(desired, ports={name: one for name, one in desired.ports.items() if name not in self._aside})

    def _set_aside(self, name: ServicePortName, why: str) -> None:
        self._aside[name] = why
        if self._told.get(name) != why:
            log.error(
                "Service %s, %s: the kernel refuses its rules, it is not served on this node; all others are: %s",
                *(name, name.protocol, why),
            )
        self._told[name] = why
