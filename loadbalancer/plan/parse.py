"""Reads Service and EndpointSlice objects. Whoever may write Services may be hostile: all of it is bounded. Pure."""

from __future__ import annotations

import hashlib
from collections import Counter

from loadbalancer.model import CLASS, FAMILIES, IPS, SHARE, Name, Problem, Service
from nodelib.addresses import Address, parse_address
from nodelib.json_values import Json, compact, object_or_empty, objects_in

SERVICE_NAME = "kubernetes.io/service-name"
_MOST_PORTS = 1000
_MOST_CURRENT = 16
_LONGEST_NOTE = 200
_LONGEST_KEY = 253


def name_of(obj: Json) -> Name:
    meta = object_or_empty(obj.get("metadata"))
    return Name(str(meta.get("namespace") or ""), str(meta.get("name") or ""))


def service(obj: Json) -> Service:
    """Never raises: what cannot be read is a problem of the Service, or left out."""
    meta, spec = object_or_empty(obj.get("metadata")), object_or_empty(obj.get("spec"))
    notes = object_or_empty(meta.get("annotations"))
    requested, problem = _requested(notes.get(IPS), spec.get("loadBalancerIP"))
    families = _families(spec)
    for one in requested:
        if one.version not in families and problem is None:
            problem = Problem("WrongFamily", f"{one} is requested, and the Service has no IPv{one.version} ipFamily.")
    current, clean = _current(obj)
    return Service(
        name=name_of(obj),
        uid=str(meta.get("uid") or ""),
        version=str(meta.get("resourceVersion") or ""),
        created=str(meta.get("creationTimestamp") or ""),
        ours=spec.get("type") == "LoadBalancer" and spec.get("loadBalancerClass") in (None, "", CLASS),
        families=families,
        all_families=spec.get("ipFamilyPolicy") != "PreferDualStack",
        requested=requested,
        share=_short(notes.get(SHARE), _LONGEST_KEY),
        ports=frozenset(_ports(spec)),
        local=spec.get("externalTrafficPolicy") == "Local",
        selector=_digest(object_or_empty(spec.get("selector"))),
        current=current,
        clean=clean,
        problem=problem,
    )


def endpoint_nodes(obj: Json) -> tuple[Name | None, Counter[str], Counter[str]]:
    """The Service of an EndpointSlice; how many ready endpoints each node has, and how many that serve until they
    end.
    """
    meta = object_or_empty(obj.get("metadata"))
    label = object_or_empty(meta.get("labels")).get(SERVICE_NAME)
    ready: Counter[str] = Counter()
    serving: Counter[str] = Counter()
    for entry in objects_in(obj.get("endpoints")):
        node, state = entry.get("nodeName"), object_or_empty(entry.get("conditions"))
        if not isinstance(node, str) or not node:
            continue
        if state.get("ready") in (None, True):
            ready[node] += 1
        elif state.get("serving") is True and state.get("terminating") is True:
            serving[node] += 1
    own = Name(str(meta.get("namespace") or ""), label) if isinstance(label, str) and label else None
    return own, ready, serving


def _families(spec: Json) -> tuple[int, ...]:
    given = spec.get("ipFamilies")
    texts = [one for one in given if isinstance(one, str)] if isinstance(given, list) else []
    found = [FAMILIES[one] for one in texts if one in FAMILIES]
    if not found:
        found = [6 if ":" in str(spec.get("clusterIP") or "") else 4]
    return tuple(dict.fromkeys(found))


def _requested(annotation: object, field: object) -> tuple[tuple[Address, ...], Problem | None]:
    """The annotation wins over spec.loadBalancerIP, which has room for one address only."""
    where, text = (IPS, annotation) if annotation else ("spec.loadBalancerIP", field)
    if not text:
        return (), None
    found: dict[int, Address] = {}
    words = str(text)[: _LONGEST_NOTE + 1].split(",")
    for word in words:
        try:
            one = parse_address(word.strip())
        except ValueError:
            return (), Problem(
                "NoAddress", f"{where} has {word.strip()[:60]!r}, which is not an IP address. Correct it."
            )
        if one.version in found:
            return (), Problem("TwoWishes", f"{where} requests two IPv{one.version} addresses. Leave one out.")
        found[one.version] = one
    return tuple(found.values()), None


def _ports(spec: Json) -> list[tuple[str, int]]:
    found = []
    for entry in objects_in(spec.get("ports"))[:_MOST_PORTS]:
        number = entry.get("port")
        if isinstance(number, int) and not isinstance(number, bool):
            found.append((str(entry.get("protocol") or "TCP")[:8], number))
    return found


def _current(obj: Json) -> tuple[tuple[Address, ...], bool]:
    ingress = objects_in(object_or_empty(object_or_empty(obj.get("status")).get("loadBalancer")).get("ingress"))
    found, clean = [], len(ingress) <= _MOST_CURRENT
    for entry in ingress[:_MOST_CURRENT]:
        try:
            found.append(parse_address(entry.get("ip")))
        except ValueError:
            clean = False
        clean = clean and entry.get("ipMode") == "VIP" and not entry.get("hostname")
    return tuple(found), clean


def _digest(selector: Json) -> str:
    """Two of them are the same, or not: no more is asked, and one may have a megabyte."""
    return hashlib.sha256(compact(sorted(selector.items(), key=str)).encode()).hexdigest()


def _short(value: object, longest: int) -> str:
    return value.strip() if isinstance(value, str) and len(value) <= longest else ""
