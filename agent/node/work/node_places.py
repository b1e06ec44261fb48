"""All Nodes of the cluster, as far as the pod network needs them: addresses and pod ranges."""

from __future__ import annotations

from collections.abc import Callable

from agent.node.model import NodePlace
from agent.node.plan.status import node_place
from nodelib.json_values import Json


class NodePlaces:
    """`on_nodes` is called with all of them, by name, whenever one of them is added, removed or changed."""

    def __init__(self, on_nodes: Callable[[list[NodePlace]], None] | None) -> None:
        self._on_nodes = on_nodes
        self._places: dict[str, NodePlace] = {}

    def on_node(self, kind: str, node: Json, old: Json | None = None) -> None:
        """A change of the API watch: ADDED, MODIFIED or DELETED (nodelib.kube.reflector)."""
        name = str(node["metadata"]["name"])
        if kind == "DELETED":
            changed = self._places.pop(name, None) is not None
        else:
            fresh = node_place(node)
            changed = self._places.get(name) != fresh
            self._places[name] = fresh
        if changed and self._on_nodes is not None:
            self._on_nodes([self._places[name] for name in sorted(self._places)])

    def ranges_beside(self, name: str) -> set[str]:
        """The pod ranges of all Nodes but this one."""
        return {cidr for place in self._places.values() if place.name != name for cidr in place.pod_cidrs}
