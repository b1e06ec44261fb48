"""Quarantine for a service port whose rules the kernel refuses, so that all other ports are served."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace

from nodelib.errors import NodewrightError
from nodelib.netlink.flows import UdpFlow
from proxy.backends.base import Backend, SyncReport
from proxy.model import Desired, NodeFacts, ServicePortName

log = logging.getLogger(__name__)

_MOST = 20  # ports quarantined in one sync: with more, the fault is not that of a port


class Quarantine:
    """Wraps a backend and leaves out quarantined ports. Each is tried again when it changes and at every full sync.

    A sync that finds more of them than it may raises, and the next one goes on from there: a user with many such ports
    delays the rules of the others, but does not stop them.
    """

    def __init__(self, inner: Backend) -> None:
        self._inner = inner
        self._quarantined: dict[ServicePortName, str] = {}
        self._logged: dict[ServicePortName, str] = {}
        self._unfinished = False

    @property
    def mode(self) -> str:
        return self._inner.mode

    @property
    def ready(self) -> bool:
        return self._inner.ready

    def node_changed(self, node: NodeFacts) -> bool:
        return self._inner.node_changed(node)

    def service_cidrs_changed(self, cidrs: tuple[str, ...]) -> bool:
        return self._inner.service_cidrs_changed(cidrs)

    async def sync(self, desired: Desired, changed: frozenset[ServicePortName] | None) -> SyncReport:
        """Raises what the inner backend raises when the error names no port."""
        again = changed if changed is not None else frozenset() if self._unfinished else frozenset(self._quarantined)
        self._quarantined = {name: why for name, why in self._quarantined.items() if name not in again}
        self._unfinished = True
        for _ in range(_MOST):
            try:
                report = await self._inner.sync(self._served(desired), changed)
            except NodewrightError as error:
                refused = self._inner.refused_port(error, desired)
                if refused is None or refused in self._quarantined:
                    raise
                # Somebody else may have changed our rules: only if a full sync fails too, the port itself is at fault.
                if changed is None:
                    self._set_quarantined(refused, str(error))
                changed = None
            else:
                self._logged = {name: why for name, why in self._logged.items() if name in self._quarantined}
                self._unfinished = False
                return report
        report = await self._inner.sync(self._served(desired), None)
        self._unfinished = False
        return replace(report, full=True)

    async def audit(self, *, deep: bool) -> list[str]:
        return await self._inner.audit(deep=deep)

    def stale_flows(self, desired: Desired, flows: Iterable[UdpFlow]) -> list[UdpFlow]:
        return self._inner.stale_flows(desired, flows)

    async def forget_clients(self) -> None:
        await self._inner.forget_clients()

    def refused_port(self, error: NodewrightError, desired: Desired) -> ServicePortName | None:
        return self._inner.refused_port(error, desired)

    async def cleanup(self) -> None:
        await self._inner.cleanup()

    def _served(self, desired: Desired) -> Desired:
        if not self._quarantined:
            return desired
        return replace(
            desired, ports={name: one for name, one in desired.ports.items() if name not in self._quarantined}
        )

    def _set_quarantined(self, name: ServicePortName, why: str) -> None:
        self._quarantined[name] = why
        if self._logged.get(name) != why:
            log.error(
                "Service %s, %s: the kernel refuses its rules, it is not served on this node; all others are: %s",
                *(name, name.protocol, why),
            )
        self._logged[name] = why
