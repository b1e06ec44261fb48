"""nftables rules as a packet meets them, from `nft -j list ruleset` (libnftables-json(5)). Pure.

Covered is what service proxies and the pod network write: matches on addresses, ports, protocol, mark, connection
state, fib type and interfaces, sets and verdict maps, jump and goto, dnat (through maps and numgen too), marks,
masquerade, reject. Another match raises Invalid, or, with `lenient`, counts as "perhaps" and says so in its hop.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nodelib.errors import Invalid
from nodelib.firewall.nft_text import expression_text
from nodelib.firewall.nft_values import Table, lookup, matches, number, values
from nodelib.firewall.trace_model import Base, Hop, Node, Way
from nodelib.json_values import Json

_DEPTH = 32
_IPTABLES = frozenset({"raw", "mangle", "nat", "filter", "security"})  # iptables-nft's own: trace_iptables reads them
_IGNORED = frozenset({"counter", "log", "set", "map", "comment", "notrack", "ct timeout", "flow", "limit", "quota"})
_VERDICTS = frozenset({"accept", "drop", "return", "jump", "goto", "continue"})


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
            if not matches(walker.table, body, way, node):
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
            mark = number(values(walker.table, body["value"], way, node)[0])
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
    keys = values(walker.table, body["key"], way, node)
    onward: list[Way] = []
    ended: list[Way] = []
    hit = False
    for key in keys:
        for verdict in lookup(walker.table, body["data"], key):
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
    addresses = values(table, body["addr"], way, node) if "addr" in body else [way.packet.destination]
    ports = values(table, body["port"], way, node) if "port" in body else [way.packet.port]
    for address, port in itertools.product(addresses, ports):
        parts = list(address) if isinstance(address, tuple) else [address, port]
        moved = replace(way.packet, destination=str(parts[0]), port=number(parts[1]))
        ways.append(replace(way, packet=moved, verdict="ACCEPT", translated=True))
    return ways or None
