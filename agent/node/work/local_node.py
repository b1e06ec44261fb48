"""The Node of a standalone agent: the same facts and conditions, kept in memory only."""

from __future__ import annotations

from agent.node.plan import node as plan
from agent.node.work.node import NodeEdges, NodeHooks, NodeKeeper, NodeTimes
from nodelib.json_values import Json
from nodelib.tasks import Work


class LocalNode(NodeKeeper):
    """`node` is the object as it would be in an API; its podCIDR is the setting `podCIDR`."""

    def __init__(
        self,
        edges: NodeEdges,
        hooks: NodeHooks,
        policy: plan.NodePolicy,
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
        """There is nobody to register with."""
        node = plan.initial_node(self._policy, self._machine.architecture, self._policy.name)
        if self._pod_cidr:
            node["spec"] |= {"podCIDR": self._pod_cidr, "podCIDRs": [self._pod_cidr]}
        node["metadata"]["uid"] = self._policy.name
        self._learn(node)
        self.registered.set()

    async def _show(self, old: Json, new: Json) -> None:
        """What would be sent is what is so."""
        assert self.node is not None
        node = {**self.node, "status": new}
        self._learn(node)
        self._node_changed("MODIFIED", node, None)
