"""What the API server has of policies, pods and namespaces, as the policy daemon would read it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from nodelib.json_values import Json
from nodelib.kube.listing import Listed
from policy.cluster_model import ClusterPolicy
from policy.model import Name, Party, Pod, Policy, Selection
from policy.plan import parse, parse_cluster
from policy.plan.explain import NOWHERE, Explained, explain

_NOTES = 20


class Objects:
    """Pods, namespaces and policies of the API, as the policy daemon reads them; `problems`: what was left out."""

    def __init__(
        self, pods: Listed, namespaces: Listed, policies: Listed, cluster: Listed | None = None, unread: str = ""
    ) -> None:
        """`cluster`: ClusterNetworkPolicies, None where there can be none; `unread`: why they could not be read."""
        self.raw_pods: Sequence[Json] = pods.items
        self.pods: list[Pod] = [parse.pod(one) for one in pods.items]
        self._by_namespace: dict[str, list[Pod]] = {}
        for pod in self.pods:
            self._by_namespace.setdefault(pod.name.namespace, []).append(pod)
        self.namespaces: Mapping[str, Mapping[str, str]] = {
            parse.name_of(one).name: parse.namespace_labels(one) for one in namespaces.items
        }
        read = [parse.policy(one) for one in policies.items]
        self.policies: list[Policy] = [one for one, _ in read]
        self.problems = {one.name: tuple(each.message for each in found) for one, found in read if found}
        above = [parse_cluster.cluster_policy(one) for one in (cluster.items if cluster is not None else ())]
        self.cluster: list[ClusterPolicy] = [one for one, _ in above if one is not None]
        self.notes = [f"{one.obj}: {one.message}" for _, found in above for one in found][:_NOTES]
        self.notes += [f"ClusterNetworkPolicies could not be read: {unread}"] if unread else []
        self.whole = pods.whole and namespaces.whole and policies.whole

    def pod(self, name: Name) -> Pod | None:
        return next((one for one in self.pods if one.name == name), None)

    def named_like(self, name: str) -> list[str]:
        """Namespaces that have a pod of that name."""
        return sorted({one.name.namespace for one in self.pods if one.name.name == name})

    def selected(self, selection: Selection) -> tuple[Name, ...]:
        """The pods that a policy of this selection applies to."""
        if selection.namespaces is None:
            among: Iterable[Pod] = self._by_namespace.get(selection.namespace, ())
        else:
            among = self.pods
        applied = (one for one in among if not one.host_network and not one.ended)
        return tuple(sorted(one.name for one in applied if selection.selects(self._party(one))))

    def _party(self, pod: Pod) -> Party:
        return Party(NOWHERE, pod, self.namespaces.get(pod.name.namespace))

    def explained(self, pod: Pod) -> Explained:
        return explain(pod, self.policies, self.pods, self.namespaces, self.cluster)
