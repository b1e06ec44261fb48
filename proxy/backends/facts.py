"""What every backend needs of the machine and the Node, as one value that it owns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from proxy.model import NodeFacts
from proxy.plan.context import Context
from proxy.plan.node import context_of_node
from proxy.plan.services import family_of

Refine = Callable[[Context, NodeFacts], Context]


def _as_it_is(ctx: Context, _: NodeFacts) -> Context:
    return ctx


class ContextOfNode:
    """`refine` looks up, before each full sync, what the context takes from the machine; it may block."""

    def __init__(self, ctx: Context, *, detect_node_cidr: bool = False, refine: Refine = _as_it_is) -> None:
        self.ctx = ctx
        self._detect_node_cidr = detect_node_cidr
        self._refine = refine
        self._node = NodeFacts(ctx.node)

    @property
    def ready(self) -> bool:
        """False while local traffic is to be told by the node's pod CIDRs and the node has none yet.

        A family without one of its own has no local traffic to tell (upstream: getLocalDetectors, a no-op detector).
        """
        return not self._detect_node_cidr or bool(self._node.pod_cidrs)

    def node_changed(self, node: NodeFacts) -> bool:
        """Take what is new of the node; True when that changes any rule."""
        was_ready = self.ready
        moved, self._node = node.ips != self._node.ips, node
        fresh = context_of_node(self.ctx, node, detect_node_cidr=self._detect_node_cidr)
        changed, self.ctx = fresh != self.ctx, fresh
        return changed or moved or self.ready != was_ready

    def service_cidrs_changed(self, cidrs: tuple[str, ...]) -> bool:
        """True when the rules of this family depend on what is new."""
        own = tuple([cidr for cidr in cidrs if family_of(cidr) is self.ctx.family])
        changed, self.ctx = own != self.ctx.service_cidrs, replace(self.ctx, service_cidrs=own)
        return changed

    async def refresh(self) -> Context:
        self.ctx = await asyncio.to_thread(self._refine, self.ctx, self._node)
        return self.ctx


class OfNode:
    """What every backend answers from these facts alone."""

    def __init__(self, facts: ContextOfNode) -> None:
        self._facts = facts

    @property
    def ready(self) -> bool:
        return self._facts.ready

    def node_changed(self, node: NodeFacts) -> bool:
        return self._facts.node_changed(node)

    def service_cidrs_changed(self, cidrs: tuple[str, ...]) -> bool:
        """No rule depends on them."""
        return False
