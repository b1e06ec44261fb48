"""nftables rules as a packet meets them, from `nft -j list ruleset` (libnftables-json(5)). Pure.

Covered is what service proxies and the pod network write: matches on addresses, ports, protocol, mark, connection
state, fib type and interfaces, sets and verdict maps, jump and goto, dnat (through maps and numgen too), marks,
masquerade, reject. Another match raises Invalid, or, with `lenient`, counts as "perhaps" and says so in its hop.
"""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nodelib.errors import Invalid
from nodelib.firewall.nft_text import expression_text
from nodelib.firewall.way import Base, Hop, Node, Way

Json = Mapping[str, Any]
_DEPTH = 32
_IPTABLES = frozenset({"raw", "mangle", "nat", "filter", "security"})  # iptables-nft's own: trace_iptables reads them
_PROTOCOLS = {6: "tcp", 17: "udp", 132: "sctp", 1: "icmp", 58: "ipv6-icmp"}
_IGNORED = frozenset({"counter", "log", "set", "map", "comment", "notrack", "ct timeout", "flow", "limit", "quota"})
_VERDICTS = frozenset({"accept", "drop", "return", "jump", "goto", "continue"})


@dataclass(slots=True)
class Table:
    """Chains and sets of one table."""

    family: str
    name: str
    rules: dict[str, list[Json]] = field(default_factory=dict)
    elements: dict[str, list[Any]] = field(default_factory=dict)
    index: dict[str, dict[Any, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Walker:
    """A base chain of a table."""

    table: Table
    name: str
    policy: str
    lenient: bool

    def walk(self, way: Way, node: Node) -> list[Way]:
        left = _chain(self, self.name, way, node, 0)
        return [replace(one, verdict="DROP") if not one.verdict and self.policy == "drop" else one for one in left]


def bases(ruleset: Json, family: str, *, lenient: bool = False) -> list[Base]:
    """The base chains of tables of `family` ("ip" or "ip6") and of inet, those of iptables-nft left out."""
    tables: dict[tuple[str, str], Table] = {}
    found: list[Base] = []
    for item in ruleset.get("nftables") or []:
        kind, obj = next(iter(item.items()))
        if kind == "metainfo" or obj["family"] not in (family, "inet"):
            continue
        name = obj["name"] if kind == "table" else obj["table"]
        if obj["family"] != "inet" and name in _IPTABLES:
            continue
        table = tables.setdefault((obj["family"], name), Table(obj["family"], name))
        if kind == "chain":
            table.rules.setdefault(obj["name"], [])
            if "hook" in obj:
                walker = Walker(table, obj["name"], obj.get("policy", "accept"), lenient)
                found.append(Base(obj["hook"], int(obj["prio"]), obj["type"] == "nat", walker.walk))
        elif kind == "rule":
            table.rules.setdefault(obj["chain"], []).append(obj)
        elif kind in ("set", "map"):
            table.elements[obj["name"]] = list(obj.get("elem") or [])
    return found


def _chain(walker: Walker, name: str, start: Way, node: Node, depth: int) -> list[Way]:
    if depth > _DEPTH:
        raise Invalid(f"chains jump in a circle at {name}", obj=f"table {walker.table.name}", step="trace a packet")
    pending, done = [start], []
    for rule in walker.table.rules.get(name, []):
        going: list[Way] = []
        for way in pending:
            onward, ended = _rule(walker, name, rule, way, node, depth)
            going += onward
            done += ended
        pending = going
    return done + pending


def _rule(walker: Walker, chain: str, rule: Json, way: Way, node: Node, depth: int) -> tuple[list[Way], list[Way]]:
    """(ways that go on with the next rule, ways that leave this chain)"""
    expressions: Sequence[Json] = rule.get("expr") or []
    certain, packets = True, None
    for expression in expressions:
        kind, body = next(iter(expression.items()))
        if kind == "counter" and isinstance(body, Mapping):
            packets = int(body.get("packets", 0))
        if kind != "match":
            continue
        try:
            if not _matches(walker.table, body, way, node):
                return [way], []
        except Invalid:
            if not walker.lenient:
                raise
            certain = False
    text = " ".join(filter(None, map(expression_text, expressions)))
    if rule.get("comment"):
        text += f' comment "{rule["comment"]}"'
    hop = Hop(f"{walker.table.family} {walker.table.name}", chain, text, packets, certain)
    seen = replace(way, trail=(*way.trail, hop))
    missed = [] if certain else [way]
    current, ended = [seen], []
    for expression in expressions:
        kind, body = next(iter(expression.items()))
        if kind == "match" or kind in _IGNORED:
            continue
        after: list[Way] = []
        for one in current:
            onward, left = _statement(walker, kind, body, one, node, depth)
            if onward is None:  # a lookup that found nothing: the rule did not match after all
                missed.append(replace(one, trail=way.trail))
                continue
            after += onward
            ended += left
        current = after
    return missed + current, ended


def _statement(
    walker: Walker, kind: str, body: Any, way: Way, node: Node, depth: int
) -> tuple[list[Way] | None, list[Way]]:
    if kind == "vmap":
        return _verdict_map(walker, body, way, node, depth)
    if kind in _VERDICTS:
        return _verdict(walker, kind, body, way, node, depth)
    if kind == "reject":
        return [], [replace(way, verdict="REJECT")]
    if kind == "masquerade":
        return [], [replace(way, verdict="ACCEPT", masqueraded=True)]
    if kind == "dnat":
        ways = _translated(walker.table, body, way, node)
        return (None, []) if ways is None else ([], ways)
    if kind == "mangle":
        if body["key"] == {"meta": {"key": "mark"}}:
            mark = _number(_values(walker.table, body["value"], way, node)[0])
            return [replace(way, packet=replace(way.packet, mark=mark))], []
        return [way], []
    if walker.lenient:
        return [way], []
    raise Invalid(f"a statement that the tracer does not know: {kind}", obj="nftables", step="trace a packet")


def _verdict(
    walker: Walker, kind: str, body: Any, way: Way, node: Node, depth: int
) -> tuple[list[Way] | None, list[Way]]:
    if kind == "continue":
        return [way], []
    if kind in ("accept", "drop"):
        return [], [replace(way, verdict=kind.upper())]
    if kind == "return":
        return [], [way]
    left = _chain(walker, body["target"], way, node, depth + 1)
    if kind == "goto":
        return [], left
    return [one for one in left if not one.verdict], [one for one in left if one.verdict]


def _verdict_map(walker: Walker, body: Json, way: Way, node: Node, depth: int) -> tuple[list[Way] | None, list[Way]]:
    keys = _values(walker.table, body["key"], way, node)
    onward: list[Way] = []
    ended: list[Way] = []
    hit = False
    for key in keys:
        for verdict in _lookup(walker.table, body["data"], key):
            hit = True
            kind, target = next(iter(verdict.items())) if isinstance(verdict, Mapping) else (str(verdict), None)
            last = way.trail[-1]
            where = f" {target['target']}" if isinstance(target, Mapping) and "target" in target else ""
            text = f"{last.text} -> {kind}{where}"
            seen = replace(way, trail=(*way.trail[:-1], last._replace(text=text, certain=len(keys) == 1)))
            if kind == "reject":
                ended.append(replace(seen, verdict="REJECT"))
                continue
            more, left = _verdict(walker, kind, target, seen, node, depth)
            onward += more or []
            ended += left
    return (onward, ended) if hit else (None, [])


def _translated(table: Table, body: Json, way: Way, node: Node) -> list[Way] | None:
    """Every place that a dnat may lead to; None: its map has nothing for this packet."""
    ways: list[Way] = []
    addresses = _values(table, body["addr"], way, node) if "addr" in body else [way.packet.destination]
    ports = _values(table, body["port"], way, node) if "port" in body else [way.packet.port]
    for address, port in itertools.product(addresses, ports):
        parts = list(address) if isinstance(address, tuple) else [address, port]
        moved = replace(way.packet, destination=str(parts[0]), port=_number(parts[1]))
        ways.append(replace(way, packet=moved, verdict="ACCEPT", translated=True))
    return ways or None


def _matches(table: Table, body: Json, way: Way, node: Node) -> bool:
    right, operator = body["right"], body["op"]
    for value in _values(table, body["left"], way, node):
        if isinstance(right, str) and right.startswith("@"):
            hit = bool(list(_lookup(table, right, value)))
        elif isinstance(value, frozenset):
            wanted = right if isinstance(right, list) else [right]
            if isinstance(right, Mapping) and "set" in right:
                wanted = right["set"]
            hit = bool(value & {str(one) for one in wanted})
            if operator == "in":
                operator = "=="
        else:
            hit = _equal(value, right)
        if operator in ("!=",):
            hit = not hit
        elif operator not in ("==", "in"):
            raise Invalid(
                f"an operator that the tracer does not know: {operator}", obj="nftables", step="trace a packet"
            )
        if hit:
            return True
    return False


def _values(table: Table, expression: Any, way: Way, node: Node) -> list[Any]:
    """What an expression may be for this packet: several values where chance decides, none where a map has none."""
    if not isinstance(expression, Mapping):
        return [expression]
    kind, body = next(iter(expression.items()))
    if kind == "concat":
        parts = [_values(table, one, way, node) for one in body]
        return [tuple(combination) for combination in itertools.product(*parts)]
    if kind == "map":
        keys = _values(table, body["key"], way, node)
        return [_plain(value) for key in keys for value in _lookup(table, body["data"], key)]
    if kind == "numgen":
        offset = int(body.get("offset", 0))
        return list(range(offset, offset + int(body["mod"])))
    if kind in ("&", "|", "^"):
        left, right = (_number(_values(table, one, way, node)[0]) for one in body)
        return [{"&": left & right, "|": left | right, "^": left ^ right}[kind]]
    return [_fact(kind, body, way, node)]


def _fact(kind: str, body: Json, way: Way, node: Node) -> Any:
    packet = way.packet
    if kind == "payload":
        found = {"saddr": packet.source, "daddr": packet.destination, "dport": packet.port}.get(body.get("field", ""))
        known = ("ip", "ip6", "th", packet.protocol)
        if found is not None and body.get("protocol") in known:
            return found
        if body.get("field") == "protocol":
            return packet.protocol
        if body.get("protocol") in ("tcp", "udp", "sctp"):
            return None  # another protocol's header
    if kind == "meta":
        facts = {"l4proto": packet.protocol, "mark": packet.mark, "iifname": packet.interface, "iif": packet.interface}
        if body["key"] in facts:
            return facts[body["key"]]
    if kind == "ct":
        return _connection(body, way)
    if kind == "fib" and body.get("result") == "type":
        address = packet.destination if "daddr" in body["flags"] else packet.source
        local = node.is_local(address) or ("saddr" in body["flags"] and not packet.interface)
        return "local" if local else "unicast"
    raise Invalid(f"a match that the tracer does not know: {kind} {body}", obj="nftables", step="trace a packet")


def _connection(body: Json, way: Way) -> Any:
    key = str(body["key"]).split(" ")[-1]
    if key == "state":
        return frozenset({"new"})
    if key == "status":
        return frozenset({"dnat"} if way.translated else ())
    if key == "mark":
        return 0
    sent = way.sent
    found = {"saddr": sent.source, "daddr": sent.destination, "proto-dst": sent.port, "protocol": sent.protocol}
    if key in found:
        return found[key]
    raise Invalid(f"a match that the tracer does not know: ct {key}", obj="nftables", step="trace a packet")


def _lookup(table: Table, data: Any, key: Any) -> Iterable[Any]:
    """The values of `key` in a map, or [True] for a set that has it."""
    elements: Sequence[Any]
    if isinstance(data, str):
        name = data.removeprefix("@")
        elements = table.elements.get(name, [])
        if name not in table.index:
            table.index[name] = {}
            for element in elements:
                value, text = _pair(element)
                table.index[name].setdefault(_hashable(value), text)
        plain = table.index[name].get(_hashable(key))
        if plain is not None:
            return [plain]
    else:
        elements = data["set"]
    for element in elements:
        wanted, value = _pair(element)
        if _equal(key, wanted):
            return [value]
    return []


def _pair(element: Any) -> tuple[Any, Any]:
    if isinstance(element, list) and len(element) == 2:
        return _unwrapped(element[0]), element[1]
    return _unwrapped(element), True


def _unwrapped(value: Any) -> Any:
    if isinstance(value, Mapping) and "elem" in value:
        return value["elem"]["val"]
    return value


def _plain(value: Any) -> Any:
    value = _unwrapped(value)
    if isinstance(value, Mapping) and "concat" in value:
        return tuple(value["concat"])
    return value


def _hashable(value: Any) -> Any:
    value = _plain(value)
    parts = value if isinstance(value, tuple) else (value,)
    return tuple(
        [
            str(_PROTOCOLS.get(part, part) if isinstance(part, int) and index == 1 else part)
            for index, part in enumerate(parts)
        ]
    )


def _equal(value: Any, wanted: Any) -> bool:
    wanted = _unwrapped(wanted)
    if isinstance(wanted, Mapping):
        kind, body = next(iter(wanted.items()))
        if kind == "concat":
            return (
                isinstance(value, tuple)
                and len(value) == len(body)
                and all(_equal(part, one) for part, one in zip(value, body, strict=True))
            )
        if kind == "prefix":
            return value is not None and ipaddress.ip_address(str(value)) in ipaddress.ip_network(
                f"{body['addr']}/{body['len']}", strict=False
            )
        if kind == "range":
            return _between(value, *body)
        if kind == "set":
            return any(_equal(value, one) for one in body)
        raise Invalid(f"a value that the tracer does not know: {kind}", obj="nftables", step="trace a packet")
    if isinstance(wanted, str) and wanted.endswith("*") and isinstance(value, str):
        return value.startswith(wanted[:-1])
    return str(value) == str(_PROTOCOLS.get(wanted, wanted) if isinstance(value, str) else wanted)


def _between(value: Any, low: Any, high: Any) -> bool:
    if isinstance(low, int):
        return low <= _number(value) <= int(high)
    first, last, own = (ipaddress.ip_address(str(one)) for one in (low, high, value))
    return first.version == own.version and int(first) <= int(own) <= int(last)


def _number(value: Any) -> int:
    return value if isinstance(value, int) else int(str(value), 0)
