"""ClusterNetworkPolicies and Nodes as the API has them, with what the tests do not care about left out."""

from __future__ import annotations

from typing import Any

from nodelib.json_values import Json

ADMIN, BASELINE = "Admin", "Baseline"


def cluster_policy(
    name: str = "c", tier: str = ADMIN, priority: int = 10, *, subject: Json | None = None, **spec: Any
) -> Json:
    """`subject`: all namespaces if it is not given; `spec`: ingress, egress."""
    body: Json = {"tier": tier, "priority": priority, "subject": subject or everybody(), **spec}
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": body}


def ingress(action: str, *peers: Json, protocols: list[Json] | None = None, name: str = "") -> Json:
    return _rule(action, "from", peers, protocols, name)


def egress(action: str, *peers: Json, protocols: list[Json] | None = None, name: str = "") -> Json:
    return _rule(action, "to", peers, protocols, name)


def _rule(action: str, key: str, peers: tuple[Json, ...], protocols: list[Json] | None, name: str) -> Json:
    found: Json = {"action": action, key: list(peers or (everybody(),))}
    if protocols is not None:
        found["protocols"] = protocols
    return {**found, "name": name} if name else found


def everybody() -> Json:
    return {"namespaces": {}}


def spaces(**labels: str) -> Json:
    return {"namespaces": {"matchLabels": labels}}


def pods(*apps: str, **labels: str) -> Json:
    """Those with one of these values of the label app, in the namespaces with these labels."""
    found: Json = {"matchExpressions": [{"key": "app", "operator": "In", "values": list(apps)}]} if apps else {}
    return {"pods": {"podSelector": found, "namespaceSelector": {"matchLabels": labels} if labels else {}}}


def networks(*cidrs: str) -> Json:
    return {"networks": list(cidrs)}


def domains(*names: str) -> Json:
    return {"domainNames": list(names)}


def nodes(**labels: str) -> Json:
    return {"nodes": {"matchLabels": labels} if labels else {}}


def port(number: int, end: int = 0, protocol: str = "tcp") -> Json:
    return {protocol: {"destinationPort": {"range": {"start": number, "end": end}} if end else {"number": number}}}


def named(name: str) -> Json:
    return {"destinationNamedPort": name}


def node(name: str, *addresses: str, **labels: str) -> Json:
    found = [{"type": "InternalIP", "address": one} for one in addresses]
    return {
        "metadata": {"name": name, "labels": labels},
        "status": {"addresses": [*found, {"type": "Hostname", "address": name}]},
    }
