"""The rows of the tables: a node, a pod with its addresses, a Service with its endpoints. Pure.

Texts of others are cut here, so that no object makes a row large; markup never arises, because the page only ever sets
text.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from nodelib.json_values import Json, object_or_empty, objects_in
from nodelib.kube.times import time_or
from nodelib.text import one_line
from view.model.network import Applied
from view.model.objects import CLUSTER_POLICY, NODE, POD, POLICY, SERVICE, Key, Row, row_key

GOOD, WAITS, BAD, OVER = "good", "waits", "bad", "over"  # how a state is shown
_TEXT = 300  # bytes of one text of the API
_ENDPOINTS = 64  # of one Service
_SORTED = 10_000  # endpoints of one Service, of which the ready ones are shown first
_ORDERED = 5000  # addresses of one Service, of which the first ones are shown
_PORTS = 8
_POLICIES = 32  # of one pod; more are not counted either
_BAD = ("BackOff", "Err", "Error", "Failed", "OOMKilled", "Invalid", "CannotRun")


def key_of(obj: Json) -> Key:
    meta = obj["metadata"]
    return str(meta.get("namespace") or ""), str(meta["name"])


def node_row(node: Json, pods: int) -> Row:
    """`pods`: how many are on it."""
    status, spec = object_or_empty(node.get("status")), object_or_empty(node.get("spec"))
    ready = _condition(node, "Ready")
    state, tone = "NotReady", BAD
    if ready.get("status") == "True":
        state, tone = ("cordoned", WAITS) if spec.get("unschedulable") else ("Ready", GOOD)
    pressures = [
        str(one.get("type"))
        for one in objects_in(status.get("conditions"))
        if one.get("status") == "True" and one.get("type") != "Ready"
    ]
    if pressures:
        state, tone = _cut(", ".join([state, *pressures])), BAD
    addresses = [
        str(one.get("address"))
        for one in objects_in(status.get("addresses"))
        if one.get("type") in ("InternalIP", "ExternalIP")
    ]
    return {
        **_head(NODE, node),
        "addresses": _texts(addresses),
        "podCIDRs": _texts(spec.get("podCIDRs") or []),
        "state": state,
        "tone": tone,
        "version": _cut(object_or_empty(status.get("nodeInfo")).get("kubeletVersion") or ""),
        "pods": pods,
    }


def pod_row(pod: Json, applied: Iterable[Applied] = ()) -> Row:
    """The state is the word that kubectl shows in its column STATUS; `applied`: which policies select the pod."""
    spec, status = object_or_empty(pod.get("spec")), object_or_empty(pod.get("status"))
    state, tone = pod_state(pod)
    boxes = objects_in(status.get("containerStatuses"))
    ips = [str(one.get("ip")) for one in objects_in(status.get("podIPs")) if one.get("ip")]
    return {
        **_head(POD, pod),
        "node": _cut(spec.get("nodeName") or ""),
        "addresses": _texts(ips or [status["podIP"]] if ips or status.get("podIP") else []),
        "hostNetwork": bool(spec.get("hostNetwork")),
        "state": _cut(state),
        "tone": tone,
        "ready": sum(bool(one.get("ready")) for one in boxes),
        "containers": len(objects_in(spec.get("containers"))),
        "policies": [_applied(one, key_of(pod)[0]) for one in islice(applied, _POLICIES)],
        "restarts": sum(int(one.get("restartCount") or 0) for one in boxes),
    }


def policy_row(policy: Json) -> Row:
    """Which pods it isolates is in their rows."""
    spec = object_or_empty(policy.get("spec"))
    kinds = spec.get("policyTypes") or ["Ingress", *(["Egress"] if spec.get("egress") else [])]
    return {
        **_head(POLICY, policy),
        "how": ", ".join(_texts(kinds)).lower(),
        "rules": [len(objects_in(spec.get(word))) for word in ("ingress", "egress")],
        "addresses": [],
        "state": "",
    }


def cluster_policy_row(policy: Json) -> Row:
    """`tier`, `priority`: when it decides."""
    spec = object_or_empty(policy.get("spec"))
    rules = {word: len(objects_in(spec.get(word))) for word in ("ingress", "egress")}
    tier, priority = _cut(spec.get("tier") or ""), spec.get("priority")
    words = ", ".join(word for word, count in rules.items() if count) or "no rules"
    return {
        **_head(CLUSTER_POLICY, policy),
        "how": f"tier {tier}, priority {_cut(priority)}: {words}",
        "tier": tier,
        "priority": priority if isinstance(priority, int) else 0,
        "rules": list(rules.values()),
        "addresses": [],
        "state": "",
    }


def _applied(one: Applied, namespace: str) -> Row:
    key = ("" if one.kind == CLUSTER_POLICY else namespace, one.name)
    return {"policy": row_key(one.kind, key), "name": _cut(one.name), "how": _cut(one.how), "tier": _cut(one.tier)}


def pod_state(pod: Json) -> tuple[str, str]:
    """The word, and how it is shown."""
    status = object_or_empty(pod.get("status"))
    phase = str(status.get("phase") or "Pending")
    word = str(status.get("reason") or _initializing(pod) or _container_word(status) or phase)
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating", WAITS
    if phase == "Succeeded":
        return ("Completed" if word == phase else word), OVER
    if phase == "Failed" or any(part in word for part in _BAD):
        return word, BAD
    if phase != "Running" or word != phase:
        return word, WAITS
    return (phase, GOOD) if _condition(pod, "Ready").get("status") == "True" else ("NotReady", WAITS)


def counted(part: Json) -> tuple[int, int]:
    """The addresses of an EndpointSlice: all, and those that are ready."""
    counts = [(len(entry.get("addresses") or []), _is_ready(entry)) for entry in objects_in(part.get("endpoints"))]
    return sum(count for count, _ in counts), sum(count for count, ready in counts if ready)


def service_row(service: Json, slices: Iterable[Json], counts: Iterable[tuple[int, int]] | None = None) -> Row:
    """With the endpoints that the EndpointSlices name, the ready ones first. `counts`: what counted() says of each, if
    that is known: a Service may have a thousand slices, and its row is made at each change of one."""
    spec = object_or_empty(service.get("spec"))
    parts = list(slices)
    sums = list(map(counted, parts)) if counts is None else list(counts)
    total, ready = (sum(one[number] for one in sums) for number in (0, 1))
    some = islice(((part, entry) for part in parts for entry in objects_in(part.get("endpoints"))), _SORTED)
    entries = _endpoints(sorted(some, key=lambda one: not _is_ready(one[1])))
    kind = str(spec.get("type") or "ClusterIP")
    state, tone = f"{ready} of {total} ready", GOOD if ready and ready == total else WAITS
    if kind == "ExternalName":
        state, tone = f"name for {spec.get('externalName')}", GOOD
    elif not ready:
        state, tone = ("no endpoint ready" if total else "no endpoints"), BAD
    addresses = [one for one in spec.get("clusterIPs") or [spec.get("clusterIP")] if one]
    ingress = objects_in(object_or_empty(object_or_empty(service.get("status")).get("loadBalancer")).get("ingress"))
    external = [one.get("ip") or one.get("hostname") for one in ingress]
    return {
        **_head(SERVICE, service),
        "type": _cut("headless" if spec.get("clusterIP") == "None" else kind),
        "addresses": _texts(
            [*(one for one in addresses if one != "None"), *(spec.get("externalIPs") or []), *external]
        ),
        "ports": [_port(one) for one in objects_in(spec.get("ports"))[:_PORTS]],
        "state": _cut(state),
        "tone": tone,
        "ready": ready,
        "total": total,
        "endpoints": entries,
    }


def _endpoints(every: Iterable[tuple[Json, Json]]) -> list[Json]:
    """What is shown of them. `every`: endpoints with their slices, the ready ones first.

    A slice may have a hundred thousand addresses: those that are not shown cost nothing, and so only the first of them
    are put in order.
    """
    addresses = ((part, entry, address) for part, entry in every for address in entry.get("addresses") or [])
    first = sorted(islice(addresses, _ORDERED), key=lambda one: (not _is_ready(one[1]), str(one[2])))
    return [_endpoint(*one) for one in first[:_ENDPOINTS]]


def _endpoint(part: Json, entry: Json, address: object) -> Json:
    conditions, about = object_or_empty(entry.get("conditions")), object_or_empty(entry.get("targetRef"))
    pod = (str(about.get("namespace") or ""), str(about.get("name"))) if about.get("kind") == "Pod" else None
    ports = (str(port["port"]) for port in objects_in(part.get("ports")) if port.get("port"))
    return {
        "address": _cut(address),
        "ports": _texts(islice(ports, _PORTS)),
        "ready": _is_ready(entry),
        "terminating": bool(conditions.get("terminating")),
        "pod": row_key(POD, (pod[0] or key_of(part)[0], pod[1])) if pod else "",
        "node": _cut(entry.get("nodeName") or ""),
    }


def _is_ready(entry: Json) -> bool:
    return object_or_empty(entry.get("conditions")).get("ready") in (None, True)


def _port(one: Json) -> str:
    number, inner = one.get("port"), one.get("targetPort")
    to = f" → {inner}" if inner not in (None, number) else ""
    node_port = f", NodePort {one['nodePort']}" if one.get("nodePort") else ""
    return _cut(f"{number}/{one.get('protocol') or 'TCP'}{to}{node_port}")


def _initializing(pod: Json) -> str:
    """ "Init:1/2" while init containers run, with the reason if one fails; "" when they are done."""
    every = objects_in(object_or_empty(pod.get("status")).get("initContainerStatuses"))
    restartable = {
        one.get("name")
        for one in objects_in(object_or_empty(pod.get("spec")).get("initContainers"))
        if one.get("restartPolicy") == "Always"
    }
    for done, one in enumerate(every):
        state = object_or_empty(one.get("state"))
        if object_or_empty(state.get("terminated")).get("exitCode") == 0:
            continue
        if one.get("name") in restartable and one.get("started"):
            continue
        reason = _reason(state)
        return f"Init:{reason}" if reason and reason != "PodInitializing" else f"Init:{done}/{len(every)}"
    return ""


def _container_word(status: Json) -> str:
    found = [_reason(object_or_empty(one.get("state"))) for one in objects_in(status.get("containerStatuses"))]
    return next(filter(None, found), "")


def _reason(state: Json) -> str:
    ended = object_or_empty(state.get("terminated"))
    if ended:
        return str(ended.get("reason") or f"ExitCode:{ended.get('exitCode')}")
    return str(object_or_empty(state.get("waiting")).get("reason") or "")


def _condition(obj: Json, kind: str) -> Json:
    every = objects_in(object_or_empty(obj.get("status")).get("conditions"))
    return next((one for one in every if one.get("type") == kind), {})


def _head(kind: str, obj: Json) -> Row:
    key = key_of(obj)
    return {
        "key": row_key(kind, key),
        "kind": kind,
        "namespace": key[0],
        "name": key[1],
        "labels": _labels(obj),
        "made": time_or(0.0, obj["metadata"].get("creationTimestamp")),
    }


def _labels(obj: Json) -> list[str]:
    labels = object_or_empty(obj["metadata"].get("labels"))
    return _texts([f"{name}={value}" for name, value in labels.items() if name != "pod-template-hash"])


def _texts(values: Iterable[object]) -> list[str]:
    return [_cut(one) for one in list(values)[:_PORTS]]


def _cut(text: object) -> str:
    return one_line(str(text), _TEXT)
