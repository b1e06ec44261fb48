"""The interface of a proxy mode: the rest of the proxy knows nothing else about it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from nodelib.errors import NodewrightError
from nodelib.netlink.flows import UdpFlow
from proxy.model import Desired, NodeFacts, ServicePortName
from proxy.model import SyncReport as SyncReport


class Backend(Protocol):
    """One address family of one mode. One task owns a backend, so calls never overlap, but those of two: see there."""

    @property
    def mode(self) -> str:
        """The name of the mode, as --proxy-mode has it."""

    @property
    def ready(self) -> bool:
        """False while the Node lacks something that the rules cannot do without (its pod CIDR)."""

    def node_changed(self, node: NodeFacts) -> bool:
        """Take the Node as it is now. True: every rule must be written again."""

    def service_cidrs_changed(self, cidrs: tuple[str, ...]) -> bool:
        """Take the ranges of cluster IPs, sorted, of both families. True: every rule must be written again."""

    async def sync(self, desired: Desired, changed: frozenset[ServicePortName] | None) -> SyncReport:
        """Bring the kernel to `desired`. `changed` None: a full sync, which must follow any error."""

    async def audit(self, *, deep: bool) -> list[str]:
        """Changes that somebody else made since the last sync, one sentence each. `deep`: compare every rule."""

    def stale_flows(self, desired: Desired, flows: Iterable[UdpFlow]) -> list[UdpFlow]:
        """UDP flows that conntrack still translates to an endpoint that no longer serves. Called from a thread, beside
        other calls."""

    async def forget_clients(self) -> None:
        """End the session affinity of clients to endpoints that are gone. May take seconds, beside other calls."""

    def refused_port(self, error: NodewrightError, desired: Desired) -> ServicePortName | None:
        """The service port whose rules the kernel refused; None when the error does not name one."""

    async def cleanup(self) -> None:
        """Remove all our rules."""
