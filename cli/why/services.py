"""Why a Service or an Ingress leads nowhere, by what the API server has. Pure.

How the nodes serve a Service is shown by `nodewright service`.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.explain.model import Wait
from cli.explain.balancer import announced, unannounced
from cli.explain.facts import Facts as EndpointFacts
from cli.explain.listening import Listening
from cli.explain.service_words import pending, problems
from cli.why.findings import finding
from cli.why.model import Explained, Facts, namespace_of, spec_of, status_of
from cli.why.remedies import remedy
from controlplane.cluster.model import CLUSTER_DOMAIN
from nodelib.json_values import Json, object_or_empty, objects_in

_DEFAULT = "ingressclass.kubernetes.io/is-default-class"
_OLD_CLASS = "kubernetes.io/ingress.class"


_ON = {  # others: its pods
    "NoLoadBalancer": "an address",
    "NotAnnounced": "a node",
    "NoSuchPort": "a port",
    "NobodyListens": "a port",
    "NoEndpointSlice": "endpoints",
}
_LISTED = ("NoLoadBalancer", "NotAnnounced", "NoSuchPort", "NobodyListens")  # others: the list has its pods
_LOOKED_AT = 1000  # workloads of a namespace that share the rarest label of the selector
_WORKLOADS = ("deployment", "statefulset", "daemonset", "replicaset")


def endpoint_facts(facts: Facts) -> EndpointFacts:
    """What `nodewright service` judges by, as far as the API server has listed it."""
    services, slices = facts.all("service"), facts.all("endpointslice")
    return EndpointFacts.of(services, slices, facts.all("pod"), facts.all("node"), leases=facts.all("lease"))


def service(obj: Json, facts: Facts, known: EndpointFacts, listening: Listening) -> Explained:
    """Judged as `nodewright service` does, but for the rules of the nodes."""
    if {"endpointslice", "pod"} <= facts.lists.keys():
        found = problems(obj, known, listening, CLUSTER_DOMAIN)
    else:
        found = [*pending(obj, known), *unannounced(obj, known)]
    waits = [Wait(_ON.get(one.reason, "pods"), one.reason, one.text, one.action) for one in found]
    state = f"type {spec_of(obj).get('type') or 'ClusterIP'}"
    if said := announced(obj, known):
        state += f", {said}"
    reasons = {one.reason for one in found}
    listed = bool(reasons.intersection(_LISTED)) or ("NoPodSelected" in reasons and not _has_workload(obj, facts))
    return finding("service", obj, state, waits, facts, listed=listed)


def _has_workload(obj: Json, facts: Facts) -> bool:
    """Whether the pods that it selects have somebody who makes them: at 0 replicas that is meant so, and otherwise the
    list has the workload."""
    wanted, namespace = object_or_empty(spec_of(obj).get("selector")).items(), namespace_of(obj)
    for kind in _WORKLOADS:
        alike = (facts.found(kind, "template label", _template_pairs, (namespace, *pair)) for pair in wanted)
        rarest = min(alike, key=len) if wanted else facts.within(kind, namespace)
        if any(wanted <= _template_labels(one).items() for one in rarest[:_LOOKED_AT]):
            return True
    return False


def _template_pairs(workload: Json) -> list[object]:
    namespace = namespace_of(workload)
    return [(namespace, *pair) for pair in _template_labels(workload).items()]


def _template_labels(workload: Json) -> Json:
    template = object_or_empty(spec_of(workload).get("template"))
    return object_or_empty(object_or_empty(template.get("metadata")).get("labels"))


def ingress(obj: Json, facts: Facts) -> Explained:
    waits = [*_controller(obj, facts), *_backends(obj, facts)]
    return finding("ingress", obj, "served" if _addresses(obj) else "no address yet", waits, facts)


def _controller(obj: Json, facts: Facts) -> Iterator[Wait]:
    if _addresses(obj):
        return
    old = object_or_empty(obj["metadata"].get("annotations")).get(_OLD_CLASS)
    classes = facts.all("ingressclass")
    name = spec_of(obj).get("ingressClassName") or old
    names = sorted(one["metadata"]["name"] for one in classes)
    if not classes and not name:
        text = "no Ingress controller runs in this cluster: it has no IngressClass"
        yield _wait(obj, "an Ingress controller", "NoIngressController", text)
    elif not name and not any(_is_default(one) for one in classes):
        text = f"it names no IngressClass and none is the default (there is: {', '.join(names)})"
        yield _wait(obj, "an Ingress controller", "NoIngressClass", text)
    elif name and name not in names and not old:
        there = f"there is: {', '.join(names)}" if names else "no Ingress controller runs in this cluster"
        reason = "NoIngressClass" if names else "NoIngressController"
        yield _wait(obj, "an Ingress controller", reason, f'there is no IngressClass "{name}" ({there})')


def _backends(obj: Json, facts: Facts) -> Iterator[Wait]:
    spec = spec_of(obj)
    paths = [
        path
        for rule in objects_in(spec.get("rules"))
        for path in objects_in(object_or_empty(rule.get("http")).get("paths"))
    ]
    backends = [object_or_empty(one.get("backend")) for one in paths] + [object_or_empty(spec.get("defaultBackend"))]
    names = {str(object_or_empty(one.get("service")).get("name") or "") for one in backends} - {""}
    for name in sorted(names):
        if facts.named("service", namespace_of(obj), name) is None:
            yield _wait(obj, "a backend", "NoBackend", f'there is no Service "{name}" in its namespace')


def _addresses(obj: Json) -> list[Json]:
    return objects_in(object_or_empty(status_of(obj).get("loadBalancer")).get("ingress"))


def _is_default(cls: Json) -> bool:
    return object_or_empty(cls["metadata"].get("annotations")).get(_DEFAULT) == "true"


def _wait(obj: Json, on: str, reason: str, text: str) -> Wait:
    return Wait(on, reason, text, remedy(reason, text, "ingress", obj))
