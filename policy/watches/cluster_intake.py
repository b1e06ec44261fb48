"""Hands ClusterNetworkPolicies and Nodes from the API to the enforcer, and says what of a policy is not understood."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nodelib.json_values import Json, object_or_empty
from nodelib.kube.client import KubeClient
from policy.enforcer import Enforcer
from policy.model import Name, Problem
from policy.plan import parse, parse_cluster
from policy.watches.cluster_policies import ClusterWatch

OnParsed = Callable[[str, str, Sequence[Problem]], None]


class ClusterIntake:
    """`on_parsed(name, uid, problems)` is called for each policy that is there, `gone` for each that was deleted.

    `no_names`: why rules with domain names cannot be obeyed here, "" if they can.
    """

    def __init__(
        self,
        client: KubeClient,
        enforcer: Enforcer,
        on_parsed: OnParsed,
        gone: Callable[[Name], None],
        no_names: str = "",
    ) -> None:
        self._enforcer, self._on_parsed, self._gone, self._no_names = enforcer, on_parsed, gone, no_names
        self.watch = ClusterWatch(client, on_policy=self._on_policy, on_node=self._on_node)

    def _on_policy(self, kind: str, obj: Json) -> None:
        name = parse.name_of(obj).name
        if kind == "DELETED":
            self._enforcer.set_cluster_policy(name, None)
            self._gone(Name("", name))
            return
        policy, problems = parse_cluster.cluster_policy(obj, no_names=self._no_names)
        self._enforcer.set_cluster_policy(name, policy)
        self._on_parsed(name, str(object_or_empty(obj.get("metadata")).get("uid", "")), problems)

    def _on_node(self, kind: str, obj: Json) -> None:
        self._enforcer.set_node(parse.name_of(obj).name, None if kind == "DELETED" else parse_cluster.node(obj))
