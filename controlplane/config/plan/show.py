"""The whole of what is wanted as the text of a file, and the format as JSON Schema. Pure."""

from __future__ import annotations

import json
from typing import Any

import yaml

from controlplane.config.model import API_VERSION, KIND, Member, Port, Registry, Wanted
from controlplane.config.plan.document import DOCUMENT
from nodelib.json_values import Json


class _Dumper(yaml.SafeDumper):
    """Without anchors for values that are the same object."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def text(wanted: Wanted) -> str:
    """A file that asks for the same; fields that say nothing are left out."""
    return str(yaml.dump(values(wanted), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120))


def values(wanted: Wanted) -> Json:
    """The values of such a file."""
    options, custom = wanted.options, wanted.custom
    kubeadm = {"controlPlanes": "control_planes", "joined": "joined", "network": "network"}
    nodes: Any = [_node(one) for one in wanted.members] or options.get("nodes")
    networking = {
        "ipFamily": options.get("ip_family"),
        "proxyMode": options.get("proxy_mode"),
        "networkPolicy": options.get("network_policy"),
        "loadBalancer": options.get("load_balancer"),
        "loadBalancerPool": options.get("load_balancer_pool"),
        "routed": options.get("routed"),
        "uplink": options.get("uplink"),
        "nodeSubnet": wanted.ranges.nodes,
        "podSubnet": wanted.ranges.pods,
        "serviceSubnet": wanted.ranges.services,
    }
    found: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": wanted.name,
        "kubernetes": options.get("kubernetes"),
        "nodes": nodes,
        "cpus": options.get("cpus"),
        "memory": _size(options.get("memory")),
        "kubelet": custom.kubelet,
        "agent": options.get("agent"),
        "proxy": options.get("proxy"),
        "networking": _given(networking),
        "ports": [_port(one) for one in custom.ports],
        "apiServer": _arguments(custom.api_server),
        "controllerManager": _arguments(custom.controller_manager),
        "scheduler": _arguments(custom.scheduler),
        "featureGates": custom.feature_gates,
        "registries": [_registry(one) for one in custom.registries],
        "storage": options.get("storage"),
        "demo": options.get("demo"),
        "durable": options.get("durable"),
        "images": wanted.images,
        "binaries": wanted.binaries,
    }
    found = _given(found)
    if options.get("kubeadm"):
        found["kubeadm"] = _given({name: options.get(ours) for name, ours in kubeadm.items()})
    if options.get("addons") is not None:
        found["addons"] = [name for name in options["addons"].split(",") if name]
    return found


def schema() -> str:
    """The format as JSON Schema, for editors."""
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "nodewright cluster"}
    return json.dumps({**head, **DOCUMENT.schema()}, indent=2) + "\n"


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value not in (None, "", {}, [], ())}


def _size(count: int | None) -> str:
    """Bytes as the largest unit that says them exactly."""
    if not count:
        return ""
    for unit, size in (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)):
        if count % size == 0:
            return f"{count // size}{unit}"
    return str(count)


def _node(member: Member) -> Json:
    entry = {
        "name": member.name,
        "labels": dict(member.labels),
        "taints": [one.to_api() for one in member.taints],
        "cpus": member.cpus or None,
        "memory": _size(member.memory),
        "mounts": [
            {"hostPath": one.host_path, "nodePath": one.node_path, **({"readOnly": True} if one.readonly else {})}
            for one in member.mounts
        ],
        "kubelet": dict(member.kubelet),
    }
    return _given(entry)


def _port(port: Port) -> Json:
    return _given(
        {"hostPort": port.host_port, "nodePort": port.node_port, "listenAddress": port.listen, "node": port.node}
    )


def _arguments(given: Any) -> Json:
    return {"args": dict(given)} if given else {}


def _registry(registry: Registry) -> Json:
    login = {
        "username": registry.username,
        "passwordFile": registry.password_file,
        "passwordEnv": registry.password_env,
    }
    mirrors = [
        {"url": one.url, "caFile": one.ca_file, **({"skipVerify": True} if one.skip_verify else {})}
        for one in registry.mirrors
    ]
    return _given({"host": registry.host, "mirrors": [_given(one) for one in mirrors], "login": _given(login)})
