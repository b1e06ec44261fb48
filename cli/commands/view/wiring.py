"""How nodes are wired and where policies are enforced, for the page of `view`: read from the kernels."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from cli.explain.facts import Facts
from cli.explain.wired import cluster_rules, table_rules, wired
from controlplane.cluster.model import Cluster
from controlplane.machine.edge import wiring
from controlplane.machine.edge.namespaces import is_bound
from nodelib.errors import Permanent
from nodelib.json_values import Json
from policy.plan import parse, parse_cluster
from policy.plan.layout import TABLE, policy_chain_name
from view.model.network import Enforced, NodeRules, TableRule, Wired

FRESH = 1.0  # seconds in which nobody's question makes the kernels be read again; less than the page waits
_MOST = 64  # answers that are kept
T = TypeVar("T")
Pick = Callable[[Sequence[Json]], Iterable[TableRule]]  # the rules in question of a table's objects


class Wirings:
    """Answers for all browsers: many of them cost a node no more than one."""

    def __init__(self, cluster: Cluster | None) -> None:
        self._cluster = cluster
        self._kept: dict[str, tuple[float, object]] = {}
        self._lock = asyncio.Lock()

    async def node(self, name: str, facts: Facts) -> Wired:
        """Raises Permanent where the node's kernel cannot be read from here."""
        net = self._net(name)

        async def read() -> Wired:
            return wired(await wiring.read(net), facts, name)

        return await self._fresh(f"node {name}", read)

    async def policy(self, obj: Json, nodes: Iterable[str]) -> Enforced:
        """The rules of a NetworkPolicy on each node that has some of them."""
        known, problems = parse.policy(obj)
        chains = [policy_chain_name(known.name, one) for one in known.rules]
        found = await self._enforced(f"policy {known.name}", nodes, lambda table: table_rules(table, chains))
        return Enforced(found, tuple(one.message for one in problems))

    async def cluster_policy(self, obj: Json, nodes: Iterable[str]) -> Enforced:
        """The same of a ClusterNetworkPolicy."""
        known, problems = parse_cluster.cluster_policy(obj)
        said = tuple(one.message for one in problems)
        if known is None:
            return Enforced((), said)
        about = f"cluster policy {known.name}"
        return Enforced(await self._enforced(about, nodes, lambda table: cluster_rules(table, known)), said)

    async def _enforced(self, about: str, nodes: Iterable[str], pick: Pick) -> tuple[NodeRules, ...]:
        return tuple([one for node in nodes if (one := await self._rules(node, about, pick)).rules])

    async def _rules(self, node: str, about: str, pick: Pick) -> NodeRules:
        net = self._net(node)

        async def read() -> NodeRules:
            families = await asyncio.gather(*(wiring.table(net, family, TABLE) for family in ("ip", "ip6")))
            return NodeRules(node, tuple(rule for one in families for rule in pick(one)))

        return await self._fresh(f"{about} {node}", read)

    def _net(self, node: str) -> str:
        if self._cluster is None or os.geteuid() != 0:
            raise Permanent("the kernels of nodes can be read by root on the machine where `./nodewright up` made them")
        net = self._cluster.namespace(node, "net")
        if node not in [one.name for one in self._cluster.nodes] or not is_bound(net):
            raise Permanent("its network namespace is not on this machine", obj=f"node {node}")
        return net

    async def _fresh(self, about: str, read: Callable[[], Awaitable[T]]) -> T:
        async with self._lock:  # one reading at a time, whoever asks
            at, found = self._kept.get(about, (0.0, None))
            if found is None or time.monotonic() - at > FRESH:
                found = await read()
                self._kept.pop(about, None)
                self._kept[about] = (time.monotonic(), found)
                for old in list(self._kept)[: max(0, len(self._kept) - _MOST)]:
                    del self._kept[old]
            return found  # type: ignore[return-value]  # kept by what it is about
