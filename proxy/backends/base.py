"""What a mode of the proxy must do; the rest of the proxy knows no more of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from nodelib.errors import NodewrightError
from nodelib.flows import UdpFlow
from proxy.model import Desired, NodeFacts, ServicePortName
from proxy.model import SyncReport as SyncReport


class Backend(Protocol):
    """One family of one mode. Calls never overlap: one task owns a backend."""

    @property
    def mode(self) -> str:
        """The name of the mode, as --proxy-mode has it."""

    @property
    def ready(self) -> bool:
        """False while something of the Node is missing without which the rules would be wrong."""

    def node_changed(self, node: NodeFacts) -> bool:
        """Take what is new of the node; True when everything must be written again."""

    def service_cidrs_changed(self, cidrs: tuple[str, ...]) -> bool:
        """Take the ranges of cluster IPs, sorted, both families; True when everything must be written again."""

    async def sync(self, desired: Desired, changed: frozenset[ServicePortName] | None) -> SyncReport:
        """Bring the kernel to `desired`; `changed` None: all of it. After an error the next call must be full."""

    async def audit(self, *, deep: bool) -> list[str]:
        """What somebody else changed since the last sync, in words; `deep` looks at every rule."""

    def stale_flows(self, desired: Desired, flows: Iterable[UdpFlow]) -> list[UdpFlow]:
        """UDP flows that conntrack still translates to where they must not go any more. Called from a thread."""

    def blame(self, error: NodewrightError, desired: Desired) -> ServicePortName | None:
        """The port whose rules the kernel refused, None when the error is of another kind."""

    async def cleanup(self) -> None:
        """Remove everything that is ours."""
