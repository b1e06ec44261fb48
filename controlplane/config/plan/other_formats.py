"""Files of kind and k3d: what they say, in our format. Pure.

They are translated for the user to read, and not obeyed: what has no counterpart here would be lost without a word.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

from controlplane.config.model import API_VERSION, KIND
from controlplane.config.plan.document import DOCUMENT
from nodelib.json_values import Json, object_or_empty, objects_in
from nodelib.text import one_line

_NODE_PORTS = range(30000, 32768)
_TOOLS = {"kind.x-k8s.io/": "kind", "k3d.io/": "k3d"}
_NODE_FIELDS = ("role", "labels", "extraMounts", "extraPortMappings")
_NETWORKING = {
    "ipFamily": "ipFamily",
    "podSubnet": "podSubnet",
    "serviceSubnet": "serviceSubnet",
    "kubeProxyMode": "proxyMode",
}
_SHOWN = 12  # fields without a counterpart


def tool_of(values: Json) -> str:
    """Whose file it is, by its apiVersion; "" for nobody's that is known."""
    version = str(values.get("apiVersion") or "")
    return next((tool for group, tool in _TOOLS.items() if version.startswith(group)), "")


def in_ours(tool: str, values: Json) -> str:
    """The same in our format, indented, and which fields have no counterpart; "" for what cannot be translated."""
    made, left_out = _of_k3d(values) if tool == "k3d" else _of_kind(values)
    made = {"apiVersion": API_VERSION, "kind": KIND, **made}
    if DOCUMENT.check(made, ()):
        return ""
    text = textwrap.indent(yaml.safe_dump(made, sort_keys=False, width=1000), "    ")
    left = [one_line(one, 100) for one in dict.fromkeys(left_out)]
    return text + (f"    # without a counterpart: {', '.join(left[:_SHOWN])}\n" if left else "")


def _of_k3d(values: Json) -> tuple[Json, list[str]]:
    counts = [values.get(name, default) for name, default in (("servers", 1), ("agents", 0))]
    made: Json = {"name": _name(values)} if _name(values) else {}
    if all(isinstance(one, int) for one in counts):
        made["nodes"] = sum(counts)
    known = ("apiVersion", "kind", "metadata", "name", "servers", "agents")
    return made, [name for name in values if name not in known]


def _name(values: Json) -> Any:
    return values.get("name") or object_or_empty(values.get("metadata")).get("name")


def _of_kind(values: Json) -> tuple[Json, list[str]]:
    nodes = objects_in(values.get("nodes")) or [{"role": "control-plane"}]
    nodes.sort(key=lambda one: one.get("role") != "control-plane")  # the first one holds the control plane here, too
    heads = sum(one.get("role") == "control-plane" for one in nodes)
    networking = object_or_empty(values.get("networking"))
    mappings = [one for node in nodes for one in objects_in(node.get("extraPortMappings"))]
    made: Json = {
        "name": _name(values),
        "nodes": _members(nodes),
        "networking": {ours: networking[name] for name, ours in _NETWORKING.items() if name in networking},
        "ports": [_port(one) for one in mappings if _leads_to_a_node_port(one)],
        "kubeadm": {"controlPlanes": heads} if heads > 1 else None,
        "featureGates": None if heads > 1 else values.get("featureGates"),
    }
    return {name: one for name, one in made.items() if one}, list(_left_out_of_kind(values, nodes, mappings, heads))


def _members(nodes: list[Json]) -> Any:
    if not any(node.get("labels") or node.get("extraMounts") for node in nodes):
        return len(nodes)
    return [
        _given(
            {
                "name": f"node{number}",
                "labels": node.get("labels"),
                "mounts": [_mount(one) for one in objects_in(node.get("extraMounts"))],
            }
        )
        for number, node in enumerate(nodes, 1)
    ]


def _mount(one: Json) -> Json:
    return _given(
        {"hostPath": one.get("hostPath"), "nodePath": one.get("containerPath"), "readOnly": one.get("readOnly")}
    )


def _port(one: Json) -> Json:
    names = {"hostPort": "hostPort", "containerPort": "nodePort", "listenAddress": "listenAddress"}
    return _given({ours: one.get(name) for name, ours in names.items()})


def _leads_to_a_node_port(one: Json) -> bool:
    return one.get("containerPort") in _NODE_PORTS and str(one.get("protocol") or "TCP").upper() == "TCP"


def _left_out_of_kind(values: Json, nodes: list[Json], mappings: Iterable[Json], heads: int) -> Iterator[str]:
    known = {"apiVersion", "kind", "name", "nodes", "networking", *(["featureGates"] if heads < 2 else [])}
    yield from (name for name in values if name not in known)
    networking = object_or_empty(values.get("networking"))
    yield from (f"networking.{name}" for name in networking if name not in _NETWORKING)
    yield from (f"nodes[].{name}" for node in nodes for name in node if name not in _NODE_FIELDS)
    for one in mappings:
        if not _leads_to_a_node_port(one):
            yield f"the mapping of port {one.get('containerPort')} (here ports lead to NodePorts, 30000 to 32767)"


def _given(found: Mapping[str, Any]) -> Json:
    return {name: one for name, one in found.items() if one not in (None, [], {})}
