"""Why a Service or an Ingress leads nowhere, by what the API server has. Pure.

How the nodes serve a Service is shown by `nodewright service`.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.explain.model import Wait
from cli.why.findings import at_time, finding
from cli.why.model import Explained, Facts, condition, namespace_of, selected, spec_of, status_of
from cli.why.remedies import remedy
from nodelib.json_values import Json, object_or_empty, objects_in

_DEFAULT = "ingressclass.kubernetes.io/is-default-class"
_OLD_CLASS = "kubernetes.io/ingress.class"


def service(obj: Json, facts: Facts) -> Explained:
    """Listed is only a LoadBalancer without an address: a Service without pods can be meant so."""
    pending, rest = list(_unbalanced(obj, facts)), list(_endpoints(obj, facts))
    state = f"type {spec_of(obj).get('type') or 'ClusterIP'}"
    return finding("service", obj, state, [*pending, *rest], facts, listed=bool(pending))


def ingress(obj: Json, facts: Facts) -> Explained:
    waits = [*_controller(obj, facts), *_backends(obj, facts)]
    return finding("ingress", obj, "served" if _addresses(obj) else "no address yet", waits, facts)


def _unbalanced(obj: Json, facts: Facts) -> Iterator[Wait]:
    spec = spec_of(obj)
    if spec.get("type") != "LoadBalancer" or _addresses(obj):
        return
    ports = [one.get("nodePort") for one in objects_in(spec.get("ports")) if one.get("nodePort")]
    addresses = [one for node in facts.all("node") for one in _node_addresses(node)]
    text = "no controller in this cluster gives addresses to Services of type LoadBalancer"
    if any(_addresses(one) for one in facts.all("service")):
        text = "the controller that gives addresses has given none to this Service yet"
    if ports and addresses:
        text += f"; it answers as NodePort {addresses[0]}:{ports[0]} meanwhile"
    action = remedy("NoLoadBalancer", text, "service", obj)
    yield Wait("an address", "NoLoadBalancer", text, action, at_time(obj["metadata"].get("creationTimestamp")))


def _endpoints(obj: Json, facts: Facts) -> Iterator[Wait]:
    spec = spec_of(obj)
    if not object_or_empty(spec.get("selector")) or spec.get("type") == "ExternalName":
        return  # somebody else writes its endpoints, or it needs none
    pods = selected(obj, facts)
    if not pods:
        labels = ",".join(f"{key}={value}" for key, value in sorted(spec["selector"].items()))
        yield _wait(obj, "pods", "NoPodSelected", f"no pod in its namespace has the labels {labels}")
        return
    ready = [one for one in pods if condition(one, "Ready").get("status") == "True"]
    if not ready and not spec.get("publishNotReadyAddresses"):
        text = f"none of its {len(pods)} pods is ready, such as {pods[0]['metadata']['name']}"
        yield _wait(obj, "pods", "NoReadyPod", text)
    for port in objects_in(spec.get("ports")):
        name = port.get("targetPort")
        if isinstance(name, str) and not name.isdigit() and not any(_has_port(one, name) for one in pods):
            text = f'none of its pods has a port named "{name}", as targetPort of port {port.get("port")} says'
            yield _wait(obj, "a port", "NoSuchPort", text)


def _controller(obj: Json, facts: Facts) -> Iterator[Wait]:
    if _addresses(obj):
        return
    old = object_or_empty(obj["metadata"].get("annotations")).get(_OLD_CLASS)
    classes = facts.all("ingressclass")
    name = spec_of(obj).get("ingressClassName") or old
    names = sorted(one["metadata"]["name"] for one in classes)
    if not classes and not name:
        text = "no Ingress controller runs in this cluster: it has no IngressClass"
        yield _wait(obj, "an Ingress controller", "NoIngressController", text, "ingress")
    elif not name and not any(_is_default(one) for one in classes):
        text = f"it names no IngressClass and none is the default (there is: {', '.join(names)})"
        yield _wait(obj, "an Ingress controller", "NoIngressClass", text, "ingress")
    elif name and name not in names and not old:
        there = f"there is: {', '.join(names)}" if names else "no Ingress controller runs in this cluster"
        reason = "NoIngressClass" if names else "NoIngressController"
        yield _wait(obj, "an Ingress controller", reason, f'there is no IngressClass "{name}" ({there})', "ingress")


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
            yield _wait(obj, "a backend", "NoBackend", f'there is no Service "{name}" in its namespace', "ingress")


def _addresses(obj: Json) -> list[Json]:
    return objects_in(object_or_empty(status_of(obj).get("loadBalancer")).get("ingress"))


def _node_addresses(node: Json) -> list[str]:
    listed = objects_in(status_of(node).get("addresses"))
    return [str(one.get("address")) for one in listed if one.get("type") == "InternalIP"]


def _has_port(pod: Json, name: str) -> bool:
    boxes = objects_in(spec_of(pod).get("containers"))
    return any(port.get("name") == name for box in boxes for port in objects_in(box.get("ports")))


def _is_default(cls: Json) -> bool:
    return object_or_empty(cls["metadata"].get("annotations")).get(_DEFAULT) == "true"


def _wait(obj: Json, on: str, reason: str, text: str, kind: str = "service") -> Wait:
    return Wait(on, reason, text, remedy(reason, text, kind, obj))
