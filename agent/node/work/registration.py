"""How this machine's Node gets into the API (tryRegisterWithAPIServer in pkg/kubelet/kubelet_node_status.go)."""

from __future__ import annotations

from typing import Protocol

from agent.node.model import MachineFacts, NodePolicy
from agent.node.plan import registration as plan
from nodelib.clock import Clock
from nodelib.errors import Permanent
from nodelib.json_values import Json
from nodelib.kube.client import ApiError

NODES = "/api/v1/nodes"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


class NodesApi(Protocol):
    """nodelib/kube/client.py KubeClient. Every call raises ApiError or ApiUnreachable."""

    async def get(self, path: str) -> Json: ...

    async def post(self, path: str, body: Json) -> Json: ...

    async def patch(self, path: str, body: Json, kind: str = "merge") -> Json: ...


class Registration:
    """Every call raises ApiError or ApiUnreachable, and returns the Node as the API shows it."""

    def __init__(self, api: NodesApi, policy: NodePolicy, machine: MachineFacts, clock: Clock) -> None:
        self._api, self._policy, self._machine, self._clock = api, policy, machine, clock

    @property
    def wanted(self) -> Json:
        """The Node to register, without its status."""
        return plan.initial_node(self._policy, self._machine.architecture, self._policy.name)

    async def create(self, status: Json, pod_cidrs: tuple[str, ...] = ()) -> Json:
        """A new Node with this status, and with these pod ranges if it had some before it was deleted."""
        node = {**self.wanted, "status": status}
        if pod_cidrs:
            node["spec"] = {**node["spec"], "podCIDR": pod_cidrs[0], "podCIDRs": list(pod_cidrs)}
        return await self._api.post(NODES, node)

    async def take_over(self) -> Json:
        """The existing Node, its default labels and annotations repaired.

        Raises Permanent when another machine uses its name.
        """
        existing = await self._api.get(f"{NODES}/{self._policy.name}")
        await self._refuse_if_foreign(existing)
        repair = plan.metadata_patch(self.wanted, existing)
        return await self.patch(repair) if repair else existing

    async def patch(self, body: Json) -> Json:
        """A strategic merge patch of the Node's status; kubelets may change their labels this way too."""
        return await self._api.patch(f"{NODES}/{self._policy.name}/status", body, kind="strategic")

    async def _refuse_if_foreign(self, existing: Json) -> None:
        try:
            lease = await self._api.get(f"{_LEASES}/{self._policy.name}")
        except ApiError as error:
            if not error.is_not_found:
                raise
            lease = None
        problem = plan.foreign_owner(existing, lease, self._machine, self._clock.now())
        if problem:
            raise Permanent(
                problem,
                obj=f"Node {self._policy.name}",
                step="register",
                action="Stop the agent there, or give this machine another name with --hostname-override.",
            )
