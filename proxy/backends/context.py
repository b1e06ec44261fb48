"""The `Context` of a backend: what its rules take from the configuration, the Node and the machine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from proxy.model import NodeFacts
from proxy.plan.addresses import family_of
from proxy.plan.context import Context
from proxy.plan.node import with_node

ReadPlatform = Callable[[Context, NodeFacts], Context]


def _unchanged(ctx: Context, _: NodeFacts) -> Context:
    return ctx


class NodeContext:
    """Keeps a `Context` up to date. `read_platform` is called before each full sync, in a thread: it may block."""

    def __init__(
        self, ctx: Context, *, detect_node_cidr: bool = False, read_platform: ReadPlatform = _unchanged
    ) -> None:
        self.ctx = ctx
        self._detect_node_cidr = detect_node_cidr
        self._read_platform = read_platform
        self._node = NodeFacts(ctx.node)

    @property
    def ready(self) -> bool:
        """False while local traffic is to be recognized by the node's pod CIDRs and the node has none yet.

        A family without a pod CIDR of its own has no local traffic (upstream getLocalDetectors: a no-op detector).
        """
        return not self._detect_node_cidr or bool(self._node.pod_cidrs)

    def node_changed(self, node: NodeFacts) -> bool:
        """Take the Node as it is now. True: that changes a rule."""
        was_ready = self.ready
        moved, self._node = node.ips != self._node.ips, node
        fresh = with_node(self.ctx, node, detect_node_cidr=self._detect_node_cidr)
        changed, self.ctx = fresh != self.ctx, fresh
        return changed or moved or self.ready != was_ready

    def service_cidrs_changed(self, cidrs: tuple[str, ...]) -> bool:
        """Take the ranges of cluster IPs. True: those of this family changed."""
        own = tuple([cidr for cidr in cidrs if family_of(cidr) is self.ctx.family])
        changed, self.ctx = own != self.ctx.service_cidrs, replace(self.ctx, service_cidrs=own)
        return changed

    async def refresh(self) -> Context:
        """Read the machine again."""
        self.ctx = await asyncio.to_thread(self._read_platform, self.ctx, self._node)
        return self.ctx


class NodeBackend:
    """Base of every backend: the answers that need nothing but its `NodeContext`."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context

    @property
    def ready(self) -> bool:
        return self._context.ready

    def node_changed(self, node: NodeFacts) -> bool:
        return self._context.node_changed(node)

    def service_cidrs_changed(self, cidrs: tuple[str, ...]) -> bool:
        """False: no rule depends on them."""
        return False

    async def forget_clients(self) -> None:
        """The kernel remembers no client apart from the rules."""
