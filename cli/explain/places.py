"""Turns FROM and TO of `trace` into places: who sends from where, to which address and port. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, replace

from cli.explain import dns_names
from cli.explain.dns_names import DnsName
from cli.explain.facts import Facts, balancer_addresses, key, node_addresses, pod_addresses, title
from cli.explain.named import (
    NODE,
    SERVICE,
    address_of_host,
    kind_of,
    pod_named,
    split_name,
    workload_elsewhere,
    workload_named,
)
from controlplane.cluster.advice import kubectl, ours
from controlplane.cluster.model import CLUSTER_DOMAIN
from nodelib.errors import Invalid, NotFound, WrongUsage
from nodelib.json_values import Json

OUTSIDE = "outside"
_STEP = "trace a packet"


@dataclass(frozen=True, slots=True)
class Sender:
    """`node`: whose rules the packet meets first, "" when the destination decides; `here`: that node sends it."""

    name: str
    address: str
    node: str
    here: bool
    pod: Json | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """`service` or `pod`: what the user named, if it was one; `notes`: what was chosen on the user's behalf."""

    address: str
    port: int
    protocol: str
    service: Json | None = None
    pod: Json | None = None
    notes: tuple[str, ...] = ()


def sender(text: str, facts: Facts, namespace: str, outside: str, domain: str = CLUSTER_DOMAIN) -> Sender:
    """A pod ("name", "ns/name", "deploy/name", its DNS name), a node, an address, or "outside". Raises NotFound."""
    if text == OUTSIDE:
        return Sender(f"outside ({outside})", outside, "", False)
    address = _address(text)
    if address:
        pod = facts.pod_at(address)
        if pod is not None:
            return _pod_sender(pod, facts)
        node = facts.node_of(address)
        return Sender(facts.named(address), address, node, bool(node))
    kind, rest = kind_of(text)
    for node_obj in facts.nodes:
        if kind in ("", NODE) and key(node_obj)[1] == rest and node_addresses(node_obj):
            return Sender(f"node {rest}", node_addresses(node_obj)[0], rest, True)
    pod = pod_named(kind, rest, facts, namespace)
    if pod is None and not kind and (named := dns_names.parse(rest, domain)) is not None:
        pod = facts.pod_at(named.address or address_of_host(named, facts))
    if pod is not None:
        return _pod_sender(pod, facts)
    service = facts.service(*split_name(rest, namespace)) if kind in ("", SERVICE) else None
    if service is not None:
        raise Invalid(
            "is a Service, and a Service sends nothing",
            obj=title(service),
            step=_STEP,
            action=f"Give one of its pods as FROM; {_pods_with_addresses(facts)} lists them.",
        )
    raise NotFound(
        "there is no pod or node with that name, and it is not an address",
        obj=text,
        step=_STEP,
        action=_elsewhere(kind, rest, namespace, facts, facts.pods)
        or (not kind and _workload(rest, namespace, facts))
        or "Give POD, NAMESPACE/POD, deploy/NAME, NODE, an address, or the word outside;"
        f" {_pods_with_addresses(facts)} lists pods and nodes.",
    )


def target(
    text: str, facts: Facts, namespace: str, sender: Sender, protocol: str, domain: str = CLUSTER_DOMAIN
) -> Target:
    """A Service, a pod, a node, an address or a DNS name, with ":PORT" (number or name). Raises NotFound, Invalid."""
    if protocol not in ("", "tcp", "udp"):
        raise WrongUsage(
            f"unknown protocol {protocol!r}", obj="--protocol", step="read options", action="Give tcp or udp."
        )
    name, port = _with_port(text)
    address = _address(name)
    if address:
        service = facts.service_at(address)
        if service is not None:
            return _service(service, address, port, protocol, ())
        pod = facts.pod_at(address)
        number = _number(port, text)
        if pod is None and facts.node_of(address):
            service = next((one for one in facts.services if number in _node_ports(one)), None)
        return Target(address, number, protocol or "tcp", service, pod)
    kind, rest = kind_of(name)
    service = facts.service(*split_name(rest, namespace)) if kind in ("", SERVICE) else None
    if service is not None:
        return _to_service(service, facts, sender, port, protocol, domain)
    pod = pod_named(kind, rest, facts, namespace)
    if pod is None:
        if kind in ("", NODE) and (node := next((one for one in facts.nodes if key(one)[1] == rest), None)):
            return _to_node(node, facts, namespace, sender, port, protocol)
        if not kind and (named := dns_names.parse(rest, domain)) is not None:
            return _to_dns_name(named, text, facts, sender, port, protocol, domain)
        instead = _elsewhere(kind, rest, namespace, facts, (*facts.services, *facts.pods))
        raise _unknown(name, instead or ("" if kind else _workload(rest, namespace, facts)))
    if not pod_addresses(pod):
        raise NotFound(
            "has no address yet",
            obj=f"pod {title(pod)}",
            step=_STEP,
            action=f"{ours(facts.cluster, 'why', title(pod))} says what it waits for.",
        )
    return _to_pod(pod, port, protocol)


def _pods_with_addresses(facts: Facts) -> str:
    return kubectl(facts.cluster, "get", "pods", "-A", "-o", "wide")


def _elsewhere(kind: str, name: str, namespace: str, facts: Facts, objects: Iterable[Json]) -> str:
    """What to give instead, where only another namespace has one of that name; "" where none has."""
    there = workload_elsewhere(kind, name, facts) or next((title(one) for one in objects if key(one)[1] == name), "")
    if "/" in name or not there:
        return ""
    return f"Namespace {namespace} has none of that name; give {there}, or that namespace with -n."


def _workload(name: str, namespace: str, facts: Facts) -> str:
    """What to give for the bare name of a workload; "" where none has it."""
    found = workload_named(name, facts, namespace)
    if not found:
        return ""
    space, kind, own = found.split("/")
    return f"There is {kind} {own} in namespace {space}: give {found}."


def _unknown(name: str, instead: str = "") -> NotFound:
    return NotFound(
        "there is no Service, pod or node with that name, and it is neither an address nor a name of the cluster's DNS",
        obj=name,
        step=_STEP,
        action=instead
        or "Give SERVICE, NAMESPACE/SERVICE, a pod, a node, an address, or a name such as"
        " web.shop.svc.cluster.local, each with :PORT if it has several. For a host outside, give its address.",
    )


def _to_node(node: Json, facts: Facts, namespace: str, sender: Sender, port: str, protocol: str) -> Target:
    address = next(iter(node_addresses(node)), "")
    if not port or not address:
        raise Invalid(
            "is a node, and has many ports" if address else "is a node without an address",
            obj=key(node)[1],
            step=_STEP,
            action=f"Give {key(node)[1]}:PORT, such as {key(node)[1]}:10250 for its kubelet.",
        )
    host = f"[{address}]" if ":" in address else address
    return target(f"{host}:{port}", facts, namespace, sender, protocol)


def _to_dns_name(
    named: DnsName, text: str, facts: Facts, sender: Sender, port: str, protocol: str, domain: str
) -> Target:
    protocol, port = protocol or named.protocol, port or named.port
    service = facts.service(named.namespace, named.service)
    address = named.address or address_of_host(named, facts)
    if address:
        pod = facts.pod_at(address)
        if pod is not None:
            return _to_pod(pod, port, protocol)
        return Target(address, _number(port or "80", text), protocol or "tcp", service)
    if service is None:
        raise _unknown(text)
    if named.host:
        raise NotFound(
            f"no endpoint of the Service {title(service)} has the host name {named.host}",
            obj=text,
            step=_STEP,
            action="A pod has a name in DNS when its spec has hostname and subdomain (a StatefulSet sets both).",
        )
    return _to_service(service, facts, sender, port, protocol, domain)


def _to_service(service: Json, facts: Facts, sender: Sender, port: str, protocol: str, domain: str) -> Target:
    spec = service["spec"]
    if spec.get("type") == "ExternalName":
        inside = dns_names.service_of(str(spec.get("externalName") or ""), domain)
        other = facts.service(*inside) if inside is not None else None
        if other is not None and (other.get("spec") or {}).get("type") != "ExternalName":
            found = _to_service(other, facts, sender, port, protocol, domain)
            return replace(found, notes=(f"{title(service)} is another name for {title(other)}", *found.notes))
        raise Invalid(
            f"is a DNS name for {spec.get('externalName')}, so no packet is ever sent to the Service",
            obj=title(service),
            step=_STEP,
            action="Trace to the address of that host.",
        )
    if spec.get("clusterIP") == "None":
        for one in facts.slices_of(service):
            for entry in one.get("endpoints") or []:
                pod = facts.pod_at(str(entry["addresses"][0]))
                number = next((int(item["port"]) for item in one.get("ports") or [] if item.get("port")), 0)
                note = f"{title(service)} is headless: DNS returns the addresses of its pods; this is the first"
                return Target(str(entry["addresses"][0]), number, protocol or "tcp", service, pod, (note,))
        raise NotFound(
            "is headless and has no endpoints",
            obj=title(service),
            step=_STEP,
            action=f"{ours(facts.cluster, 'service', title(service))} says why.",
        )
    if sender.node or sender.here:
        return _service(service, _cluster_ip(service), port, protocol, ())
    public = [*balancer_addresses(service), *(spec.get("externalIPs") or [])]
    if public:
        return _service(service, public[0], port, protocol, (f"from outside: its address {public[0]}",))
    entry = _port_entry(service, port, protocol)
    if entry.get("nodePort"):
        address = next(address for node in facts.nodes for address in node_addresses(node))
        note = f"from outside: its NodePort {entry['nodePort']} on {facts.named(address)}"
        return Target(address, int(entry["nodePort"]), _protocol(entry), service, None, (note,))
    note = "it has no external address (type ClusterIP), so this traces to its cluster IP, which only nodes know"
    return _service(service, _cluster_ip(service), port, protocol, (note,))


def _cluster_ip(service: Json) -> str:
    address = str(service["spec"].get("clusterIP") or "")
    if not address:
        raise NotFound(
            "has no cluster IP", obj=title(service), step=_STEP, action="Look at it with `./nodewright service`."
        )
    return address


def _service(service: Json, address: str, port: str, protocol: str, notes: tuple[str, ...]) -> Target:
    entries = service["spec"].get("ports") or []
    if port.isdigit() and not any(one["port"] == int(port) for one in entries):
        shown = ", ".join(str(one["port"]) for one in entries)
        return Target(
            address, int(port), protocol or "tcp", service, None, (*notes, f"the Service's ports are {shown}")
        )
    entry = _port_entry(service, port, protocol)
    return Target(address, int(entry["port"]), _protocol(entry), service, None, notes)


def _port_entry(service: Json, port: str, protocol: str) -> Json:
    entries = service["spec"].get("ports") or []
    for one in entries:
        fits = not protocol or _protocol(one) == protocol
        if fits and (not port or port in (str(one["port"]), one.get("name"), str(one.get("nodePort", "")))):
            found: Json = one
            return found
    shown = ", ".join(f"{one.get('name') or one['port']}={one['port']}/{_protocol(one)}" for one in entries)
    raise Invalid(f"has no port {port or protocol}", obj=title(service), step=_STEP, action=f"Its ports are {shown}.")


def _to_pod(pod: Json, port: str, protocol: str) -> Target:
    listed = [
        (str(one.get("name", "")), int(one["containerPort"]), str(one.get("protocol", "TCP")).lower())
        for container in pod["spec"].get("containers") or []
        for one in container.get("ports") or []
    ]
    named = [one for one in listed if not port or port in (one[0], str(one[1]))]
    number, kind = (named[0][1], named[0][2]) if named else (_number(port or "80", title(pod)), "tcp")
    notes = () if port or named else ("the pod names no port, so 80 was assumed",)
    return Target(pod_addresses(pod)[0], number, protocol or kind, None, pod, notes)


def _pod_sender(pod: Json, facts: Facts) -> Sender:
    node = str(pod["spec"].get("nodeName") or "")
    addresses = pod_addresses(pod)
    if not addresses or not node:
        raise NotFound(
            "has no address yet, so it cannot send anything",
            obj=f"pod {title(pod)}",
            step=_STEP,
            action=f"{ours(facts.cluster, 'why', title(pod))} says what it waits for.",
        )
    return Sender(f"pod {title(pod)}", addresses[0], node, bool(pod["spec"].get("hostNetwork")), pod)


def _node_ports(service: Json) -> list[int]:
    return [int(one.get("nodePort") or 0) for one in (service.get("spec") or {}).get("ports") or []]


def _protocol(entry: Json) -> str:
    return str(entry.get("protocol") or "TCP").lower()


def _with_port(text: str) -> tuple[str, str]:
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        return host, rest.removeprefix(":")
    if text.count(":") == 1:
        host, _, port = text.partition(":")
        return host, port
    return text, ""


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text.strip("[]")))
    except ValueError:
        return ""


def _number(port: str, text: str) -> int:
    if not port.isdigit() or not 0 < int(port) < 65536:
        said = f"{port!r} is not a port number" if port else "has no port"
        host = _with_port(text)[0].strip("[]")
        example = f"[{host}]:443" if ":" in host else f"{host}:443"
        raise WrongUsage(said, obj=text, step=_STEP, action=f"Give ADDRESS:PORT, such as {example}.")
    return int(port)
