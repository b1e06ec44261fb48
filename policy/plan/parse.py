"""Reads NetworkPolicies, Pods and Namespaces as the API has them. Pure.

Whatever an object says, reading it never raises: a part that cannot be understood is left out and becomes a `Problem`.
Leaving out a rule or a peer allows less, never more, because the policy isolates its pods all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ipaddress import IPv6Address

from nodelib.addresses import parse_address, parse_network
from nodelib.json_values import Json, object_or_empty, objects_in
from policy.model import (
    Address,
    Block,
    Direction,
    Name,
    NamedPort,
    Network,
    Peer,
    Pod,
    Policy,
    PolicyRule,
    PortRange,
    Problem,
    Requirement,
    Selection,
    Selector,
)
from policy.plan import labels

_PROTOCOLS = ("TCP", "UDP", "SCTP")
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_MOST_REQUIREMENTS = 128  # of one selector; all of them are asked of each pod of the cluster, whenever it changes


class Unclear(ValueError):
    """A part of an object that cannot be understood; the text says why."""


LeftOut = Callable[[str, Unclear], None]


def policy(obj: Json) -> tuple[Policy, list[Problem]]:
    """A NetworkPolicy, and what of it was left out."""
    name, spec = name_of(obj), object_or_empty(obj.get("spec"))
    problems: list[Problem] = []

    def left_out(where: str, error: Unclear) -> None:
        problems.append(Problem(f"NetworkPolicy {name}", f"{where}: {error}"))

    try:
        chosen = selector(spec.get("podSelector"))
    except Unclear as error:
        left_out("spec.podSelector", error)
        # Closed rather than open: a policy whose pods are unknown isolates all of its namespace.
        chosen = Selector()
    rules: dict[Direction, tuple[PolicyRule, ...]] = {}
    for direction in _directions(spec):
        entries = spec.get(direction.lower())
        found = []
        for number, entry in enumerate(entries if isinstance(entries, list) else ()):
            where = f"spec.{direction.lower()}[{number}]"
            try:
                found.append(_rule(object_or_empty(entry), direction, name.namespace, where, left_out))
            except Unclear as error:
                left_out(where, error)
        rules[direction] = tuple(found)
    return Policy(name, Selection(chosen, name.namespace), rules), problems


def pod(obj: Json) -> Pod:
    """A Pod."""
    meta, spec, status = (object_or_empty(obj.get(part)) for part in ("metadata", "spec", "status"))
    host = spec.get("hostNetwork") is True
    ended = status.get("phase") in ("Succeeded", "Failed")
    given = [item.get("ip") for item in objects_in(status.get("podIPs"))] or [status.get("podIP")]
    # A mirror pod has a UID of its own; the runtime knows the static pod's. Anybody may give his pods the second alone.
    notes = object_or_empty(meta.get("annotations"))
    mirrored = notes.get("kubernetes.io/config.mirror") and notes.get("kubernetes.io/config.hash")
    uid = mirrored or meta.get("uid", "")
    return Pod(
        name_of(obj),
        str(uid),
        labels.kept(meta.get("labels")),
        str(spec.get("nodeName") or ""),
        () if host or ended else _addresses(given),
        _named_ports(spec),
        host,
        ended,
    )


def name_of(obj: Json) -> Name:
    meta = object_or_empty(obj.get("metadata"))
    return Name(str(meta.get("namespace", "")), str(meta.get("name", "")))


def namespace_labels(obj: Json) -> Mapping[str, str]:
    return labels.kept(object_or_empty(obj.get("metadata")).get("labels"))


def addresses(given: object) -> tuple[Address, ...]:
    """The addresses in a list of texts; what is none is left out."""
    return _addresses(given if isinstance(given, list) else [])


def _addresses(given: list[object]) -> tuple[Address, ...]:
    found = []
    for text in given[:16]:
        try:
            found.append(parse_address(text))
        except ValueError:
            continue
    return tuple(dict.fromkeys(found))


def _named_ports(spec: Json) -> dict[NamedPort, frozenset[int]]:
    found: dict[NamedPort, frozenset[int]] = {}
    # Of the init containers only sidecars serve anything once the pod runs.
    sidecars = [one for one in objects_in(spec.get("initContainers")) if one.get("restartPolicy") == "Always"]
    for container in (*objects_in(spec.get("containers")), *sidecars):
        for port in objects_in(container.get("ports")):
            number = port.get("containerPort")
            if port.get("name") and is_port(number):
                key = NamedPort(str(port.get("protocol") or "TCP"), str(port["name"]))
                found[key] = found.get(key, frozenset()) | {int(number)}  # type: ignore[arg-type]
    return found


def _directions(spec: Json) -> list[Direction]:
    given = spec.get("policyTypes")
    if isinstance(given, list) and given:
        return [one for one in Direction if one in given]
    return [Direction.INGRESS, Direction.EGRESS] if spec.get("egress") else [Direction.INGRESS]


def _rule(entry: Json, direction: Direction, namespace: str, where: str, left_out: LeftOut) -> PolicyRule:
    key = "from" if direction is Direction.INGRESS else "to"
    return PolicyRule(
        _peers(entry.get(key), namespace, f"{where}.{key}", left_out), *_ports(entry.get("ports"), where, left_out)
    )


def _peers(value: object, namespace: str, where: str, left_out: LeftOut) -> tuple[Peer, ...] | None:
    if value is None or value == []:
        return None
    if not isinstance(value, list):
        raise Unclear("the peers are not a list")
    found: list[Peer] = []
    for number, entry in enumerate(value):
        try:
            found.append(_peer(object_or_empty(entry), namespace))
        except Unclear as error:
            left_out(f"{where}[{number}]", error)
    return tuple(dict.fromkeys(found))


def _peer(entry: Json, namespace: str) -> Peer:
    block, pods, namespaces = (entry.get(key) for key in ("ipBlock", "podSelector", "namespaceSelector"))
    if block is not None:
        if pods is not None or namespaces is not None:
            raise Unclear("ipBlock does not go together with a selector")
        return _block(object_or_empty(block))
    if pods is None and namespaces is None:
        raise Unclear("it has none of ipBlock, podSelector and namespaceSelector")
    chosen = selector(pods) if pods is not None else Selector()
    if namespaces is None:
        return Selection(chosen, namespace)
    return Selection(chosen, namespaces=selector(namespaces))


def _block(value: Json) -> Block:
    excepted = value.get("except") or []
    if not isinstance(excepted, list):
        raise Unclear("except is not a list")
    return Block(network(value.get("cidr")), tuple([network(one) for one in excepted]))


def network(text: object) -> Network:
    try:
        found = parse_network(text, strict=False)
    except ValueError as error:
        raise Unclear(f"{str(text)[:60]!r} is not a network ({str(error)[:80]})") from error
    if isinstance(found.network_address, IPv6Address) and found.network_address.ipv4_mapped is not None:
        # The API server takes it for IPv4: as an exception of an IPv4 block it would otherwise take nothing away.
        raise Unclear(f"{str(text)[:60]!r} is an IPv4 network written as IPv6")
    return found


def _ports(value: object, where: str, left_out: LeftOut) -> tuple[tuple[PortRange, ...] | None, tuple[NamedPort, ...]]:
    if value is None or value == []:
        return None, ()
    if not isinstance(value, list):
        raise Unclear("the ports are not a list")
    numbers: list[PortRange] = []
    named: list[NamedPort] = []
    for number, entry in enumerate(value):
        try:
            found = _port(object_or_empty(entry))
        except Unclear as error:
            left_out(f"{where}.ports[{number}]", error)
            continue
        if isinstance(found, NamedPort):
            named.append(found)
        else:
            numbers.append(found)
    return tuple(numbers), tuple(dict.fromkeys(named))


def _port(entry: Json) -> PortRange | NamedPort:
    protocol = entry.get("protocol") or "TCP"
    if protocol not in _PROTOCOLS:
        raise Unclear(f"the protocol {str(protocol)[:20]!r} is unknown")
    port, end = entry.get("port"), entry.get("endPort")
    if port is None:
        return PortRange(protocol, 0, 65535)
    if isinstance(port, str):
        if not port:
            raise Unclear("the port's name is empty")
        return NamedPort(protocol, port)
    if not is_port(port) or not (end is None or is_port(end)):
        raise Unclear(f"the port {str(port)[:20]} to {str(end)[:20]} is not 1 to 65535")
    last = port if end is None else end
    if last < port:
        raise Unclear(f"endPort {last} is before port {port}")
    return PortRange(protocol, port, last)


def is_port(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 65535


def selector(value: object) -> Selector:
    if value is None:
        return Selector()
    if not isinstance(value, dict):
        raise Unclear("the selector is not an object")
    found = [Requirement(str(key), "In", frozenset((str(one),))) for key, one in _pairs(value.get("matchLabels"))]
    expressions = value.get("matchExpressions") or []
    if not isinstance(expressions, list):
        raise Unclear("matchExpressions is not a list")
    for entry in map(object_or_empty, expressions):
        operator, values = entry.get("operator"), entry.get("values") or []
        if operator not in _OPERATORS or not isinstance(values, list):
            raise Unclear(f"the operator {str(operator)[:20]!r} with these values is unknown")
        found.append(Requirement(str(entry.get("key", "")), str(operator), frozenset(map(str, values))))
    if len(found) > _MOST_REQUIREMENTS:
        raise Unclear(f"the selector has {len(found)} requirements, and {_MOST_REQUIREMENTS} are the most")
    order = sorted(set(found), key=lambda one: (one.key, one.operator, sorted(one.values)))
    return Selector(tuple(order))


def _pairs(value: object) -> list[tuple[str, str]]:
    if value is None:
        return []
    if not isinstance(value, dict):
        raise Unclear("matchLabels is not an object")
    return list(value.items())
