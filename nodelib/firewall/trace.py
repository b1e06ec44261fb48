"""The way of a new connection's first packet through a ruleset: every outcome that is possible. Pure.

Follows the hooks of the kernel (PREROUTING or OUTPUT in nat, then filter INPUT, FORWARD or OUTPUT, then
nat POSTROUTING). A rule with `statistic` splits the way in two. Covered are the matches and targets that
`canonical` covers; an unknown match raises Invalid rather than answer wrongly.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from nodelib.errors import Invalid
from nodelib.firewall.objects import Rule, TableContent
from nodelib.firewall.render import rule_text

_FINAL = ("ACCEPT", "DROP", "REJECT")
_DEPTH = 32


@dataclass(frozen=True, slots=True)
class Packet:
    """The first packet of a flow. `interface` is where it came in, "" for one that this node sends."""

    source: str
    destination: str
    port: int
    protocol: str = "tcp"
    interface: str = "eth0"
    mark: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where one way ends: `verdict` ACCEPT, DROP or REJECT, `to` the final "ip:port", `trail` the matched rules."""

    verdict: str
    to: str
    translated: bool
    masqueraded: bool
    trail: tuple[str, ...] = field(compare=False, default=())


@dataclass(frozen=True, slots=True)
class Node:
    """What the kernel knows beside the rules: its own addresses, and clients that `recent` remembers."""

    addresses: frozenset[str]
    recent: frozenset[tuple[str, str]] = frozenset()  # (list name, source address)

    def is_local(self, address: str) -> bool:
        return address in self.addresses or ipaddress.ip_address(address).is_loopback


@dataclass(frozen=True, slots=True)
class _Way:
    packet: Packet
    verdict: str = ""
    translated: bool = False
    masqueraded: bool = False
    trail: tuple[str, ...] = ()


def trace(tables: Mapping[str, TableContent], packet: Packet, node: Node) -> tuple[Outcome, ...]:
    """All outcomes, in the order of the rules, each once."""
    from_here = not packet.interface
    ways = _hook(tables, "nat", "OUTPUT" if from_here else "PREROUTING", [_Way(packet)], node)
    after: list[_Way] = []
    for way in ways:
        onward = "INPUT" if node.is_local(way.packet.destination) else "FORWARD"
        chain = "OUTPUT" if from_here else onward
        after.extend(_hook(tables, "filter", chain, [replace(way, verdict="")], node))
    passed = [way for way in after if way.verdict in ("", "ACCEPT")]
    stopped = [way for way in after if way.verdict not in ("", "ACCEPT")]
    sent = _hook(tables, "nat", "POSTROUTING", [replace(way, verdict="") for way in passed], node)
    outcomes: dict[Outcome, None] = {}
    for way in [*stopped, *sent]:
        to = _endpoint(way.packet.destination, way.packet.port)
        outcomes[Outcome(way.verdict or "ACCEPT", to, way.translated, way.masqueraded, way.trail)] = None
    return tuple(outcomes)


def _hook(tables: Mapping[str, TableContent], table: str, chain: str, ways: Collection[_Way], node: Node) -> list[_Way]:
    content = tables.get(table)
    if content is None:
        return list(ways)
    done: list[_Way] = []
    for way in ways:
        done.extend(_chain(content, chain, way, node, 0))
    return done


def _chain(content: TableContent, name: str, start: _Way, node: Node, depth: int) -> list[_Way]:
    """Ways that leave the chain: with a verdict they are final for the table, without one they go on after it."""
    if depth > _DEPTH:
        raise Invalid(f"chains jump in a circle at {name}", obj=f"table {content.table}", step="trace a packet")
    pending, done = [start], []
    for rule in content.rules(name):
        going: list[_Way] = []
        for way in pending:
            matched = _matches(rule, way, node)
            if matched is not True:
                going.append(way)
            if matched is False:
                continue
            seen = replace(way, trail=(*way.trail, f"{content.table} {name} {rule_text(rule)}"))
            onward, ended = _target(content, rule, seen, node, depth)
            going.extend(onward)
            done.extend(ended)
        pending = going
    return done + pending


def _target(content: TableContent, rule: Rule, way: _Way, node: Node, depth: int) -> tuple[list[_Way], list[_Way]]:
    """(ways that go on with the next rule, ways that leave this chain)"""
    target = rule.target
    words = rule.words
    if target == "":
        return [way], []
    if target in _FINAL:
        return [], [replace(way, verdict=target)]
    if target == "RETURN":
        # Without a verdict the way goes on in the calling chain, as at the end of this one.
        return [], [way]
    if target == "MARK":
        return [replace(way, packet=replace(way.packet, mark=_marked(words, way.packet.mark)))], []
    if target == "MASQUERADE":
        return [], [replace(way, verdict="ACCEPT", masqueraded=True)]
    if target == "DNAT":
        host, port = _split_endpoint(words[words.index("--to-destination") + 1], way.packet.port)
        moved = replace(way.packet, destination=host, port=port)
        return [], [replace(way, packet=moved, verdict="ACCEPT", translated=True)]
    if not content.has(target):
        raise Invalid(f"jump to {target}, which does not exist", obj=f"table {content.table}", step="trace a packet")
    left = _chain(content, target, way, node, depth + 1)
    return [one for one in left if not one.verdict], [one for one in left if one.verdict]


def _matches(rule: Rule, way: _Way, node: Node) -> bool | None:
    """None: perhaps (a matter of chance)."""
    packet, words = way.packet, rule.words
    index, negated, module, certain = 0, False, "", True
    recent_name = ""
    check_recent = False
    while index < len(words):
        word = words[index]
        value = words[index + 1] if index + 1 < len(words) else ""
        if word == "!":
            negated, index = True, index + 1
            continue
        if word in ("-j", "-g"):
            break
        if word in ("--reap", "--set", "--rcheck", "--rsource"):
            check_recent = check_recent or word == "--rcheck"
            index += 1
            continue
        if word == "-m":
            module = value
        elif word == "--probability":
            certain = False
        elif module == "recent":
            recent_name = value if word == "--name" else recent_name
        else:
            hit = _word_matches(word, value, way, packet, node)
            if hit == negated:
                return False
        index, negated = index + 2, False
    if check_recent and (recent_name, packet.source) not in node.recent:
        return False
    return True if certain else None


def _word_matches(word: str, value: str, way: _Way, packet: Packet, node: Node) -> bool:
    if word in ("-s", "--source"):
        return _inside(packet.source, value)
    if word in ("-d", "--destination"):
        return _inside(packet.destination, value)
    if word in ("-p", "--protocol"):
        return packet.protocol == value
    if word == "--dport":
        low, _, high = value.partition(":")
        return int(low) <= packet.port <= int(high or low)
    if word == "-i":
        return packet.interface.startswith(value[:-1]) if value.endswith("+") else packet.interface == value
    if word == "--dst-type":
        return node.is_local(packet.destination) == (value == "LOCAL")
    if word == "--src-type":
        return (not packet.interface or node.is_local(packet.source)) == (value == "LOCAL")
    if word == "--ctstate":
        states = value.split(",")
        return "NEW" in states or ("DNAT" in states and way.translated)
    if word == "--mark":
        number, _, mask = value.partition("/")
        return packet.mark & int(mask or "0xffffffff", 0) == int(number, 0)
    if word in ("--comment", "--mode", "--nfacct-name"):
        return True
    raise Invalid(f"a match that the tracer does not know: {word} {value}", obj="iptables", step="trace a packet")


def _marked(words: tuple[str, ...], mark: int) -> int:
    for index, word in enumerate(words):
        if word == "--or-mark":
            return mark | int(words[index + 1], 0)
        if word == "--xor-mark":
            return mark ^ int(words[index + 1], 0)
        if word == "--set-xmark":
            value, _, mask = words[index + 1].partition("/")
            return (mark & ~int(mask or "0xffffffff", 0)) ^ int(value, 0)
    raise Invalid(f"MARK without a value: {' '.join(words)}", obj="iptables", step="trace a packet")


def _inside(address: str, network: str) -> bool:
    net = ipaddress.ip_network(network, strict=False)
    host = ipaddress.ip_address(address)
    return host.version == net.version and host in net


def _endpoint(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _split_endpoint(text: str, port: int) -> tuple[str, int]:
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        return host, int(rest[1:]) if rest.startswith(":") else port
    if text.count(":") > 1:
        return text, port
    host, _, rest = text.partition(":")
    return host, int(rest) if rest else port
