"""Traces a packet through iptables chains: matches, targets, jumps. Pure.

It knows the same matches and targets as `canonical.py`. An unknown match raises Invalid; with `lenient` the trace
branches instead, and the hop says that the match is not certain.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, replace

from nodelib.errors import Invalid
from nodelib.firewall.objects import Rule, TableContent
from nodelib.firewall.render import rule_text
from nodelib.firewall.trace_model import FINAL, Base, Branch, Hop, Node, Packet

_DEPTH = 32
_HOOKS = {
    "PREROUTING": "prerouting",
    "INPUT": "input",
    "FORWARD": "forward",
    "OUTPUT": "output",
    "POSTROUTING": "postrouting",
}
_PRIORITY = {"raw": -300, "mangle": -150, "nat": -100, "filter": 0}


@dataclass(frozen=True, slots=True)
class Walker:
    """Walks a built-in chain of a table."""

    content: TableContent
    name: str
    lenient: bool = False

    def walk(self, branch: Branch, node: Node) -> list[Branch]:
        left = _chain(self, self.name, branch, node, 0)
        if self.name not in self.content.dropping:
            return left
        policy = Hop(self.content.table, self.name, "policy DROP")
        return [one if one.verdict else replace(one, verdict="DROP", trail=(*one.trail, policy)) for one in left]


def bases(tables: Mapping[str, TableContent], *, lenient: bool = False) -> list[Base]:
    """Every built-in chain that the tracer follows, with its hook and priority."""
    found = []
    for table, content in tables.items():
        for chain, hook in _HOOKS.items():
            if table in _PRIORITY and (content.rules(chain) or chain in content.dropping):
                priority = 100 if (table, chain) == ("nat", "POSTROUTING") else _PRIORITY[table]
                found.append(Base(hook, priority, table == "nat", Walker(content, chain, lenient).walk))
    return found


def _chain(walker: Walker, name: str, start: Branch, node: Node, depth: int) -> list[Branch]:
    """The branches that leave the chain: those with a verdict leave the table, the others continue after the jump."""
    if depth > _DEPTH:
        raise Invalid(f"chains jump in a circle at {name}", obj=f"table {walker.content.table}", step="trace a packet")
    content = walker.content
    counters = content.counters.get(name, ())
    pending: list[Branch] = [start]
    done: list[Branch] = []
    for index, rule in enumerate(content.rules(name)):
        going: list[Branch] = []
        for branch in pending:
            matched = _matches(rule, branch, node, walker.lenient)
            if matched is not True:
                going.append(branch)
            if matched is False:
                continue
            packets = counters[index] if index < len(counters) else None
            hop = Hop(content.table, name, rule_text(rule), packets, certain=matched is True)
            seen = replace(branch, trail=(*branch.trail, hop))
            onward, ended = _target(walker, rule, seen, node, depth)
            going.extend(onward)
            done.extend(ended)
        pending = going
    return done + pending


def _target(walker: Walker, rule: Rule, branch: Branch, node: Node, depth: int) -> tuple[list[Branch], list[Branch]]:
    """(branches that continue with the next rule, branches that leave this chain)"""
    target = rule.target
    words = rule.words
    content = walker.content
    if target == "":
        return [branch], []
    if target in FINAL:
        return [], [replace(branch, verdict=target)]
    if target == "RETURN":
        # Without a verdict the branch continues in the calling chain, as at the end of this one.
        return [], [branch]
    if target == "MARK":
        return [replace(branch, packet=replace(branch.packet, mark=_marked(words, branch.packet.mark)))], []
    if target == "MASQUERADE":
        return [], [replace(branch, verdict="ACCEPT", masqueraded=True)]
    if target == "DNAT":
        host, port = _split_endpoint(words[words.index("--to-destination") + 1], branch.packet.port)
        moved = replace(branch.packet, destination=host, port=port)
        return [], [replace(branch, packet=moved, verdict="ACCEPT", translated=True)]
    if target == "REDIRECT":
        here = "127.0.0.1" if ":" not in branch.packet.destination else "::1"
        if branch.packet.interface:
            # The kernel takes the interface's first address. Which that is, is not known here.
            here = min((one for one in node.addresses if (":" in one) == (":" in here)), default=here)
        port = int(words[words.index("--to-ports") + 1]) if "--to-ports" in words else branch.packet.port
        moved = replace(branch.packet, destination=here, port=port)
        return [], [replace(branch, packet=moved, verdict="ACCEPT", translated=True)]
    if not content.has(target):
        if walker.lenient:
            return [branch], []  # LOG, CT, TCPMSS and the like: the packet continues
        raise Invalid(f"jump to {target}, which does not exist", obj=f"table {content.table}", step="trace a packet")
    left = _chain(walker, target, branch, node, depth + 1)
    return [one for one in left if not one.verdict], [one for one in left if one.verdict]


def _matches(rule: Rule, branch: Branch, node: Node, lenient: bool) -> bool | None:
    """Whether the rule matches; None: it may, by chance."""
    packet, words = branch.packet, rule.words
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
            try:
                hit = _word_matches(word, value, branch, packet, node)
            except Invalid:
                if not lenient:
                    raise
                hit, certain = not negated, False
            if hit == negated:
                return False
        index, negated = index + 2, False
    if check_recent and (recent_name, packet.source) not in node.recent:
        return False
    return True if certain else None


def _word_matches(word: str, value: str, branch: Branch, packet: Packet, node: Node) -> bool:
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
        return "NEW" in states or ("DNAT" in states and branch.translated)
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


def _split_endpoint(text: str, port: int) -> tuple[str, int]:
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        return host, int(rest[1:]) if rest.startswith(":") else port
    if text.count(":") > 1:
        return text, port
    host, _, rest = text.partition(":")
    return host, int(rest) if rest else port
