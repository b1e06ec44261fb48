"""The Node of a standalone agent: the same status and conditions, kept in memory only."""

from __future__ import annotations

from agent.node.model import NodePolicy
from agent.node.work.deps import NodeEdges, NodeHooks, NodeTimes
from agent.node.work.node import NodeManager
from nodelib.json_values import Json
from nodelib.tasks import Work


class LocalNode(NodeManager):
    """`node` is the object as it would be in an API; its podCIDR is the setting `podCIDR`."""

    def __init__(
        self,
        edges: NodeEdges,
        hooks: NodeHooks,
        policy: NodePolicy,
        *,
        port: int = 10250,
        register: bool = True,
        times: NodeTimes | None = None,
        pod_cidr: str = "",
    ) -> None:
        super().__init__(edges, hooks, policy, port=port, register=register, times=times)
        self._pod_cidr = pod_cidr

    def tasks(self) -> dict[str, Work]:
        """Name -> long-lived work."""
        return {"node-runtime": self.watch.run, "node-status": self.keep_status}

    async def register(self) -> None:
        """Keep the Node here: there is no API to create it in."""
        node = self._registration.wanted
        if self._pod_cidr:
            node["spec"] |= {"podCIDR": self._pod_cidr, "podCIDRs": [self._pod_cidr]}
        node["metadata"]["uid"] = self._policy.name
        self._store(node)
        self.registered.set()

    async def _write(self, old: Json, new: Json) -> None:
        assert self.node is not None
        node = {**self.node, "status": new}
        self._store(node)
        self._places.on_node("MODIFIED", node)
