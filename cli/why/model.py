"""What `why` asks about, what the API server has, and what is found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from agent.explain.model import Explanation
from cli.explain.lookups import Lookups
from loadbalancer.model import NAMESPACE
from nodelib.json_values import Json, object_or_empty, objects_in
from policy.drops.plan.document import ReportedDrop

# Every kind that can be asked for: its name, how kubectl abbreviates it, and where the API server lists it.
KINDS: Mapping[str, tuple[str, str]] = {
    "pod": ("po pods", "/api/v1/pods"),
    "deployment": ("deploy deployments", "/apis/apps/v1/deployments"),
    "replicaset": ("rs replicasets", "/apis/apps/v1/replicasets"),
    "statefulset": ("sts statefulsets", "/apis/apps/v1/statefulsets"),
    "daemonset": ("ds daemonsets", "/apis/apps/v1/daemonsets"),
    "job": ("jobs", "/apis/batch/v1/jobs"),
    "cronjob": ("cj cronjobs", "/apis/batch/v1/cronjobs"),
    "pvc": ("persistentvolumeclaim persistentvolumeclaims", "/api/v1/persistentvolumeclaims"),
    "service": ("svc services", "/api/v1/services"),
    "ingress": ("ing ingresses", "/apis/networking.k8s.io/v1/ingresses"),
    "node": ("no nodes", "/api/v1/nodes"),
}
# What is only looked up in.
OTHERS: Mapping[str, str] = {
    "event": "/api/v1/events",
    "endpointslice": "/apis/discovery.k8s.io/v1/endpointslices",
    "storageclass": "/apis/storage.k8s.io/v1/storageclasses",
    "ingressclass": "/apis/networking.k8s.io/v1/ingressclasses",
    "lease": f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases",  # of our load balancer daemons
}


@dataclass(frozen=True, slots=True)
class LogTail:
    """The last lines that a container wrote before it ended, oldest first."""

    container: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Explained:
    """One object's explanation.

    `by_node`: it is its node's answer, not only the API server's. `listed`: it belongs in the list of what is not
    well; not so what its pods show already, or what somebody stopped on purpose. `owner`: "deployment/web" for a pod
    of it. `refused`: packets from or to the pod that network policies refused.
    """

    found: Explanation
    by_node: bool
    kind: str = "pod"
    listed: bool = True
    owner: str = ""
    logs: tuple[LogTail, ...] = ()
    refused: tuple[ReportedDrop, ...] = ()

    @property
    def is_well(self) -> bool:
        if self.kind != "pod":
            return not self.found.waits
        return not self.found.waits and self.found.phase in ("Running", "Succeeded")


@dataclass(frozen=True, slots=True)
class Facts(Lookups):
    """What the API server has, by kind; a kind that it did not list is not in `lists`."""

    lists: Mapping[str, tuple[Json, ...]] = field(default_factory=dict)

    def all(self, kind: str) -> tuple[Json, ...]:
        return self.lists.get(kind, ())

    def found(self, kind: str, what: str, keys: Callable[[Json], Iterable[object]], key: object) -> list[Json]:
        """The objects of `kind` that have `key` among their `keys`; `what` names these."""
        return self._found((kind, what), self.all(kind), keys, key)

    def within(self, kind: str, namespace: str) -> list[Json]:
        return self.found(kind, "namespace", lambda one: [namespace_of(one)], namespace)

    def named(self, kind: str, namespace: str, name: str) -> Json | None:
        key = (namespace, name)
        found = self.found(kind, "name", lambda one: [(namespace_of(one), one["metadata"]["name"])], key)
        return found[0] if found else None

    def labelled(self, kind: str, namespace: str, label: tuple[str, str]) -> list[Json]:
        """The objects of a namespace with one label."""
        return self.found(
            kind,
            "label",
            lambda one: [(namespace_of(one), *pair) for pair in object_or_empty(one["metadata"].get("labels")).items()],
            (namespace, *label),
        )

    def owned(self, kind: str, owner: Json) -> list[Json]:
        """The objects of `kind` that the owner's controller made."""
        uid = owner["metadata"].get("uid")
        return self.found(kind, "owner", lambda one: [controller(one).get("uid")], uid) if uid else []

    def events(self, obj: Json) -> list[Json]:
        """The object's events, oldest first. Those about a Node may give its name as the UID, as kubelets do."""
        meta = obj["metadata"]
        known = {meta.get("uid"), None if meta.get("namespace") else meta["name"]} - {None, ""}
        found = [one for uid in known for one in self.found("event", "about", _about, uid)]
        return sorted(found, key=newest)


def _about(event: Json) -> list[object]:
    return [object_or_empty(event.get("involvedObject")).get("uid")]


def namespace_of(obj: Json) -> str:
    return str(obj["metadata"].get("namespace") or "")


def controller(obj: Json) -> Json:
    """The reference to the object's controller, {} without one."""
    found = objects_in(obj["metadata"].get("ownerReferences"))
    return next((one for one in found if one.get("controller")), {})


def newest(event: Json) -> str:
    """When it happened last, as RFC 3339; all of the API's times compare as text."""
    series = object_or_empty(event.get("series")).get("lastObservedTime")
    made = event["metadata"].get("creationTimestamp")
    return str(series or event.get("lastTimestamp") or event.get("eventTime") or made or "")


def condition(obj: Json, kind: str) -> Json:
    """One of the object's conditions, {} if it has none of that type."""
    found = objects_in(object_or_empty(obj.get("status")).get("conditions"))
    return next((one for one in found if one.get("type") == kind), {})


def spec_of(obj: Json) -> Json:
    return object_or_empty(obj.get("spec"))


def status_of(obj: Json) -> Json:
    return object_or_empty(obj.get("status"))


def pods_of(kind: str, obj: Json, facts: Facts) -> list[Json]:
    """The pods that a workload has made, by way of its ReplicaSets or Jobs."""
    match kind:
        case "deployment":
            return [pod for one in facts.owned("replicaset", obj) for pod in facts.owned("pod", one)]
        case "cronjob":
            return [pod for one in facts.owned("job", obj) for pod in facts.owned("pod", one)]
    return facts.owned("pod", obj)


def selected(service: Json, facts: Facts) -> list[Json]:
    """The pods that the Service's selector matches."""
    wanted = object_or_empty(spec_of(service).get("selector"))
    pods = facts.labelled("pod", namespace_of(service), next(iter(wanted.items()))) if wanted else []
    return [one for one in pods if wanted.items() <= object_or_empty(one["metadata"].get("labels")).items()]
