"""The objects of a cluster that explanations use, and the names of addresses. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from cli.explain.lookups import Lookups
from controlplane.cluster.model import DEFAULT_NAME
from nodelib.json_values import Json

SERVICE_NAME = "kubernetes.io/service-name"


@dataclass(frozen=True, slots=True)
class Facts(Lookups):
    """Lists of objects as the API server returned them; `names` maps an address to what has it.

    `cluster`: whose they are, as it is called on this machine.
    """

    services: tuple[Json, ...] = ()
    slices: tuple[Json, ...] = ()
    pods: tuple[Json, ...] = ()
    nodes: tuple[Json, ...] = ()
    policies: tuple[Json, ...] = ()
    leases: tuple[Json, ...] = ()  # of our load balancer daemons
    names: dict[str, str] = field(default_factory=dict)
    cluster: str = DEFAULT_NAME
    enforced: bool = False  # whether the nodes enforce network policies

    @classmethod
    def of(
        cls,
        services: Iterable[Json],
        slices: Iterable[Json],
        pods: Iterable[Json],
        nodes: Iterable[Json],
        policies: Iterable[Json] = (),
        leases: Iterable[Json] = (),
        *,
        cluster: str = DEFAULT_NAME,
    ) -> Facts:
        known = cls(tuple(services), tuple(slices), tuple(pods), tuple(nodes), tuple(policies), leases=tuple(leases))
        return replace(known, names=_names(known), cluster=cluster)

    def named(self, text: str) -> str:
        """An address, or address:port, followed by the name of what has it."""
        address = text.rpartition(":")[0].strip("[]") if text.count(":") == 1 or text.startswith("[") else text
        name = self.names.get(address) or self.names.get(text)
        return f"{text} ({name})" if name else text

    def service(self, namespace: str, name: str) -> Json | None:
        return next(iter(self._found("service", self.services, lambda one: [key(one)], (namespace, name))), None)

    def pod(self, namespace: str, name: str) -> Json | None:
        return next(iter(self._found("pod", self.pods, lambda one: [key(one)], (namespace, name))), None)

    def pod_at(self, address: str) -> Json | None:
        """The pod that has the address now; pods in the host's network have none of their own."""
        there = (pod for pod in self._found("pod at", self.pods, pod_addresses, address) if not _on_host(pod))
        return next(filter(alive, there), None)

    def pod_behind(self, service: Json, address: str) -> Json | None:
        """The pod that a Service's endpoint is, by what its EndpointSlice says: also one in its node's network."""
        namespace = key(service)[0]
        for entry in self._found(f"behind {title(service)}", self._entries(service), _addresses, address):
            about = entry.get("targetRef") or {}
            if about.get("kind") == "Pod":
                return self.pod(namespace, str(about.get("name")))
        return self.pod_at(address)

    def _entries(self, service: Json) -> Iterator[Json]:
        for one in self.slices_of(service):
            yield from one.get("endpoints") or []

    def slices_of(self, service: Json) -> list[Json]:
        return self._found("slice", self.slices, _service_of, key(service))

    def pods_in(self, namespace: str) -> list[Json]:
        return self._found("namespace", self.pods, lambda one: [key(one)[0]], namespace)

    def pods_like(self, selector: Mapping[str, str], namespace: str | None = None) -> list[Json]:
        """The pods that have that label of the selector which the fewest have; `namespace` None: of all namespaces.

        Only these can have all of its labels.
        """
        what = "label" if namespace is None else "label in namespace"
        keys = _pairs if namespace is None else _pairs_in_namespace
        begin = () if namespace is None else (namespace,)
        alike = (self._found(what, self.pods, keys, (*begin, *pair)) for pair in selector.items())
        return min(alike, key=len, default=[])

    def cluster_ip(self, address: str) -> bool:
        """Whether it is a cluster IP, which only nodes and pods can reach."""
        return bool(self._found("cluster IP", self.services, cluster_ips, address))

    def service_at(self, address: str) -> Json | None:
        """The Service that has the address as its cluster IP, otherwise the first that asks for it from outside."""
        inside = self._found("cluster IP", self.services, cluster_ips, address)
        return next(iter(inside or self._found("outside", self.services, outer_addresses, address)), None)

    def node_of(self, address: str) -> str:
        """The node that has the address, or whose pod has it; "" for an address outside the cluster."""
        pod = self.pod_at(address)
        if pod is not None:
            return str(pod["spec"].get("nodeName") or "")
        for node in self.nodes:
            if address in node_addresses(node):
                return str(node["metadata"]["name"])
        return ""


def _pairs(pod: Json) -> list[object]:
    return list((pod["metadata"].get("labels") or {}).items())


def _pairs_in_namespace(pod: Json) -> list[object]:
    namespace = key(pod)[0]
    return [(namespace, *pair) for pair in (pod["metadata"].get("labels") or {}).items()]


def _addresses(entry: Json) -> list[str]:
    return list(entry.get("addresses") or [])


def _service_of(part: Json) -> list[object]:
    return [(key(part)[0], (part["metadata"].get("labels") or {}).get(SERVICE_NAME))]


def key(obj: Json) -> tuple[str, str]:
    """(namespace, name)"""
    meta = obj["metadata"]
    return str(meta.get("namespace", "")), str(meta["name"])


def title(obj: Json) -> str:
    return "/".join(part for part in key(obj) if part)


def pod_addresses(pod: Json) -> list[str]:
    status = pod.get("status") or {}
    listed = [str(one["ip"]) for one in status.get("podIPs") or [] if one.get("ip")]
    return listed or ([str(status["podIP"])] if status.get("podIP") else [])


def node_addresses(node: Json) -> list[str]:
    listed = (node.get("status") or {}).get("addresses") or []
    return [str(one["address"]) for one in listed if one.get("type") in ("InternalIP", "ExternalIP")]


def balancer_addresses(service: Json) -> list[str]:
    ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []
    return [str(one["ip"]) for one in ingress if one.get("ip")]


def ready_addresses(slices: Iterable[Json]) -> set[str]:
    """The addresses of the endpoints that are ready."""
    return {
        str(address)
        for one in slices
        for entry in one.get("endpoints") or []
        if (entry.get("conditions") or {}).get("ready") in (None, True)
        for address in entry.get("addresses") or []
    }


def alive(pod: Json) -> bool:
    """Whether the pod still owns its address: ended pods keep it in their status, but it may belong to another now."""
    return (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")


def _on_host(pod: Json) -> bool:
    return bool((pod.get("spec") or {}).get("hostNetwork"))


def _names(facts: Facts) -> dict[str, str]:
    """A cluster IP is its Service's, whoever else asks for it: no proxy gives it to another one."""
    found: dict[str, str] = {}
    for node in facts.nodes:
        for address in node_addresses(node):
            found[address] = f"node {title(node)}"
    for pod in facts.pods:
        if alive(pod) and not _on_host(pod):
            for address in pod_addresses(pod):
                found[address] = f"pod {title(pod)}"
    for addresses in (outer_addresses, cluster_ips):
        for service in facts.services:
            for address in addresses(service):
                found[address] = f"Service {title(service)}"
    return found


def cluster_ips(service: Json) -> list[str]:
    return [one for one in (service.get("spec") or {}).get("clusterIPs") or [] if one and one != "None"]


def outer_addresses(service: Json) -> list[str]:
    """External IPs and load balancer addresses."""
    listed = (service.get("spec") or {}).get("externalIPs") or []
    return [one for one in [*listed, *balancer_addresses(service)] if one and one != "None"]
