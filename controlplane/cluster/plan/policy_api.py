"""The CRD of ClusterNetworkPolicy v1alpha2, as sigs.k8s.io/network-policy-api v0.2.0 defines its fields. Pure.

With the experimental fields `nodes` and `domainNames`. Written from the API's types: upstream's file has the same
rules, and its API documentation as descriptions, which is 50 kB.
"""

from __future__ import annotations

from typing import Any

from controlplane.cluster.plan.manifests import Object, typed

Schema = dict[str, Any]

GROUP, VERSION, KIND, PLURAL = "policy.networking.k8s.io", "v1alpha2", "ClusterNetworkPolicy", "clusternetworkpolicies"
NAME = f"{PLURAL}.{GROUP}"
OWNER = {"app.kubernetes.io/managed-by": "nodewright"}
BUNDLE = "v0.2.0"
# The API server refuses a CRD in a group of Kubernetes' own without it.
_APPROVED = "https://github.com/kubernetes-sigs/network-policy-api/pull/347"
_MOST = 25
_DOMAIN = r"^(\*\.)?([a-zA-z0-9]([-a-zA-Z0-9_]*[a-zA-Z0-9])?\.)+[a-zA-z0-9]([-a-zA-Z0-9_]*[a-zA-Z0-9])?\.?$"
_NO_NAMED_PORTS = (
    "!(self.to.exists(peer, has(peer.networks) || has(peer.nodes) || has(peer.domainNames)) && has(self.protocols)"
    " && self.protocols.exists(protocol, has(protocol.destinationNamedPort)))"
)


def crd() -> Object:
    """The CustomResourceDefinition."""
    columns = [
        {"name": "Tier", "type": "string", "jsonPath": ".spec.tier"},
        {"name": "Priority", "type": "string", "jsonPath": ".spec.priority"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
        "schema": {"openAPIV3Schema": _schema()},
    }
    names = {
        "kind": KIND,
        "listKind": f"{KIND}List",
        "plural": PLURAL,
        "singular": KIND.lower(),
        "shortNames": ["cnp"],
    }
    made = typed(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        NAME,
        labels=dict(OWNER),
        spec={"group": GROUP, "scope": "Cluster", "names": names, "versions": [version]},
    )
    made["metadata"]["annotations"] = {
        "api-approved.kubernetes.io": _APPROVED,
        f"{GROUP}/bundle-version": BUNDLE,
        f"{GROUP}/channel": "experimental",
    }
    return made


def _schema() -> Schema:
    whole = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": _spec(),
        "status": _status(),
    }
    about = "A network policy of the whole cluster, whose rules come before or after all NetworkPolicies."
    return _object(whole, ("metadata", "spec"), about)


def _spec() -> Schema:
    everywhere = {"namespaces": _selector("Namespaces with these labels."), "pods": _pods()}
    elsewhere = {
        **everywhere,
        "nodes": _selector("The addresses of the nodes with these labels."),
        "networks": _set({"type": "string", "maxLength": 43, **_rule("isCIDR(self)", "Invalid CIDR format provided")}),
        "domainNames": _set({"type": "string", "pattern": _DOMAIN}),
    }
    egress = _traffic_rule("to", elsewhere)
    egress |= _rule(_NO_NAMED_PORTS, "networks/nodes/domainNames peers have no named ports")
    return _object(
        {
            "tier": {
                "type": "string",
                "enum": ["Admin", "Baseline"],
                "description": "Admin: before all NetworkPolicies. Baseline: for pods that no NetworkPolicy isolates.",
            },
            "priority": _integer(0, 1000, "Lower numbers come first within a tier."),
            "subject": _one_of(everywhere, "The pods to which the policy applies."),
            "ingress": {"type": "array", "maxItems": _MOST, "items": _traffic_rule("from", everywhere)},
            "egress": {"type": "array", "maxItems": _MOST, "items": egress},
        },
        ("priority", "subject", "tier"),
    )


def _traffic_rule(key: str, peers: dict[str, Schema]) -> Schema:
    action = {
        "type": "string",
        "enum": ["Accept", "Deny", "Pass"],
        "description": "Accept and Deny are final for the direction. Pass skips the rest of the tier.",
    }
    fields: dict[str, Schema] = {
        "name": {"type": "string", "maxLength": 100},
        "action": action,
        key: _list(_one_of(peers)),
        "protocols": _list(_one_of(_protocols())),
    }
    return _object(fields, ("action", key))


def _protocols() -> dict[str, Schema]:
    ends = _object({"start": _integer(1, 65535), "end": _integer(1, 65535)}, ("end", "start"))
    ends |= _rule("self.start < self.end", "Start port must be less than End port")
    port = _one_of({"number": _integer(1, 65535), "range": ends})
    specific = {"type": "object", "minProperties": 1, "properties": {"destinationPort": port}}
    named = {"type": "string", "description": "The port that the containers of the destination call so."}
    return {"tcp": specific, "udp": specific, "sctp": specific, "destinationNamedPort": named}


def _pods() -> Schema:
    fields = {"namespaceSelector": _selector(), "podSelector": _selector()}
    return _object(fields, ("podSelector",), "Pods with these labels in the namespaces with these labels.")


def _selector(about: str = "") -> Schema:
    values = {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "atomic"}
    term = _object({"key": {"type": "string"}, "operator": {"type": "string"}, "values": values}, ("key", "operator"))
    fields = {
        "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
        "matchExpressions": {"type": "array", "items": term, "x-kubernetes-list-type": "atomic"},
    }
    return {**_object(fields, (), about), "x-kubernetes-map-type": "atomic"}


def _status() -> Schema:
    condition = _object(
        {
            "type": {"type": "string", "maxLength": 316},
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "reason": {"type": "string", "minLength": 1, "maxLength": 1024},
            "message": {"type": "string", "maxLength": 32768},
            "lastTransitionTime": {"type": "string", "format": "date-time"},
            "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
        },
        ("lastTransitionTime", "message", "reason", "status", "type"),
    )
    conditions = {
        "type": "array",
        "items": condition,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    }
    return _object({"conditions": conditions}, ("conditions",))


def _object(fields: dict[str, Schema], required: tuple[str, ...] = (), about: str = "") -> Schema:
    found: Schema = {"type": "object", "properties": fields}
    if required:
        found["required"] = list(required)
    return {**found, "description": about} if about else found


def _one_of(fields: dict[str, Schema], about: str = "") -> Schema:
    return {**_object(fields, (), about), "minProperties": 1, "maxProperties": 1}


def _list(items: Schema) -> Schema:
    return {"type": "array", "minItems": 1, "maxItems": _MOST, "items": items}


def _set(items: Schema) -> Schema:
    return {**_list(items), "x-kubernetes-list-type": "set"}


def _integer(least: int, most: int, about: str = "") -> Schema:
    found: Schema = {"type": "integer", "format": "int32", "minimum": least, "maximum": most}
    return {**found, "description": about} if about else found


def _rule(rule: str, message: str) -> Schema:
    return {"x-kubernetes-validations": [{"rule": rule, "message": message}]}
