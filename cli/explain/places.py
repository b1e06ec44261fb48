"""Turns FROM and TO of `trace` into places: who sends from where, to which address and port. Pure."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from cli.explain.facts import Facts, balancer_addresses, key, node_addresses, pod_addresses, title
from nodelib.errors import Invalid, NotFound
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


def sender(text: str, facts: Facts, namespace: str, outside: str) -> Sender:
    """A pod ("name", "ns/name"), a node, an address, or "outside". Raises NotFound."""
    if text == OUTSIDE:
        return Sender(f"outside ({outside})", outside, "", False)
    address = _address(text)
    if address:
        pod = facts.pod_at(address)
        if pod is not None:
            return _pod_sender(pod)
        node = facts.node_of(address)
        return Sender(facts.named(address), address, node, bool(node))
    kind, _, rest = text.rpartition("/") if text.startswith(("pod/", "node/")) else ("", "", text)
    for node_obj in facts.nodes:
        if kind in ("", "node") and key(node_obj)[1] == rest and node_addresses(node_obj):
            return Sender(f"node {rest}", node_addresses(node_obj)[0], rest, True)
    pod = facts.pod(*_split(text.removeprefix("pod/"), namespace))
    if pod is None:
        raise NotFound(
            "there is no pod or node with that name, and it is not an address",
            obj=text,
            step=_STEP,
            action="Give POD, NAMESPACE/POD, NODE, an"
            " address, or the word outside; `./nodewright kubectl -- get pods -A -o wide` lists pods and nodes.",
        )
    return _pod_sender(pod)


def target(text: str, facts: Facts, namespace: str, come: Sender, protocol: str) -> Target:
    """A Service, a pod or an address, each with ":PORT" (a number or a port's name). Raises NotFound, Invalid."""
    if protocol not in ("", "tcp", "udp"):
        raise Invalid(
            f"unknown protocol {protocol!r}", obj="--protocol", step="read options", action="Give tcp or udp."
        )
    name, port = _with_port(text)
    address = _address(name)
    if address:
        service = next((one for one in facts.services if address in _addresses(one)), None)
        if service is not None:
            return _service(service, address, port, protocol, ())
        pod = facts.pod_at(address)
        number = _number(port, text)
        if pod is None and facts.node_of(address):
            service = next((one for one in facts.services if number in _node_ports(one)), None)
        return Target(address, number, protocol or "tcp", service, pod)
    wanted = _split(name.removeprefix("service/").removeprefix("svc/").removeprefix("pod/"), namespace)
    service = None if name.startswith("pod/") else facts.service(*wanted)
    if service is not None:
        return _to_service(service, facts, come, port, protocol)
    pod = facts.pod(*wanted)
    if pod is None:
        raise NotFound(
            "there is no Service or pod with that name, and it is not an address",
            obj=name,
            step=_STEP,
            action="Give SERVICE, NAMESPACE/SERVICE, a pod or an address, each with :PORT if it has several.",
        )
    if not pod_addresses(pod):
        raise NotFound(
            "has no address yet",
            obj=f"pod {title(pod)}",
            step=_STEP,
            action=f"`./nodewright why {title(pod)}` says what it waits for.",
        )
    return _to_pod(pod, port, protocol)


def _to_service(service: Json, facts: Facts, come: Sender, port: str, protocol: str) -> Target:
    spec = service["spec"]
    if spec.get("type") == "ExternalName":
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
            action=f"`./nodewright service {title(service)}` says why.",
        )
    if come.node or come.here:
        return _service(service, str(spec["clusterIP"]), port, protocol, ())
    public = [*balancer_addresses(service), *(spec.get("externalIPs") or [])]
    if public:
        return _service(service, public[0], port, protocol, (f"from outside: its address {public[0]}",))
    entry = _port_entry(service, port, protocol)
    if entry.get("nodePort"):
        address = next(address for node in facts.nodes for address in node_addresses(node))
        note = f"from outside: its NodePort {entry['nodePort']} on {facts.named(address)}"
        return Target(address, int(entry["nodePort"]), _protocol(entry), service, None, (note,))
    note = "it has no external address (type ClusterIP), so this traces to its cluster IP, which only nodes know"
    return _service(service, str(spec["clusterIP"]), port, protocol, (note,))


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


def _pod_sender(pod: Json) -> Sender:
    node = str(pod["spec"].get("nodeName") or "")
    addresses = pod_addresses(pod)
    if not addresses or not node:
        raise NotFound(
            "has no address yet, so it cannot send anything",
            obj=f"pod {title(pod)}",
            step=_STEP,
            action=f"`./nodewright why {title(pod)}` says what it waits for.",
        )
    return Sender(f"pod {title(pod)}", addresses[0], node, bool(pod["spec"].get("hostNetwork")), pod)


def _addresses(service: Json) -> list[str]:
    spec = service.get("spec") or {}
    return [*(spec.get("clusterIPs") or []), *(spec.get("externalIPs") or []), *balancer_addresses(service)]


def _node_ports(service: Json) -> list[int]:
    return [int(one.get("nodePort") or 0) for one in (service.get("spec") or {}).get("ports") or []]


def _protocol(entry: Json) -> str:
    return str(entry.get("protocol") or "TCP").lower()


def _split(text: str, namespace: str) -> tuple[str, str]:
    before, slash, after = text.partition("/")
    return (before, after) if slash else (namespace, text)


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
        raise Invalid(f"{port!r} is not a port number", obj=text, step=_STEP, action="Give ADDRESS:PORT.")
    return int(port)
