"""Walks a new connection through the table of the nftables mode as the kernel would, from its values alone."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from nodelib.firewall.objects import Family
from nodelib.firewall.trace import Node, Packet
from nodelib.nft import actions, keys, matches, rules
from nodelib.nft.wire import element_data, element_key
from proxy.plan.context import Context
from proxy.plan.nftables import layout
from proxy.plan.nftables.sync import AppliedState

_PROTOCOL = {"tcp": 6, "udp": 17, "sctp": 132}
_TERMINAL = ("accept", "drop", "reject")


@dataclass
class _State:
    source: str
    to: str
    port: int
    protocol: str
    interface: str
    choice: int  # what every random number is taken from
    mark: int = 0
    masqueraded: bool = False
    original: tuple[str, int] = ("", 0)


@dataclass
class Tracer:
    """`remembered`: (frontend, client) -> endpoint, as packets would have left them in the affinity map."""

    ctx: Context
    applied: AppliedState
    remembered: dict[tuple[str, str], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._chains: dict[str, tuple[rules.NftRule, ...]] = layout.fixed_chains(self.ctx)
        self._chains |= {name: layout.chain_rules(name) for name in self.applied.chains}
        self._sets = {
            name: {element_key(raw): element_data(raw) for raw in raws}
            for name, raws in self.applied.expected().items()
        }
        v6 = self.ctx.family is Family.IPV6
        self._size = 16 if v6 else 4

    def flow(self, packet: Packet, node: Node) -> str:
        """As tests.unit.proxy.build.flow: what may become of it, every random choice taken."""
        seen: dict[str, None] = {}
        masqueraded = False
        for choice in range(12):
            state = _State(*(packet.source, packet.destination, packet.port, packet.protocol, packet.interface), choice)
            verdict = self._walk(state, node)
            if verdict != "accept":
                seen[verdict.upper()] = None
            elif state.original[0]:
                seen[f"{state.to}:{state.port}"] = None
                masqueraded = masqueraded or state.masqueraded
            else:
                seen["passes"] = None
        return ", ".join(sorted(seen)) + (" masq" if masqueraded else "")

    def _walk(self, state: _State, node: Node) -> str:
        first = "output" if node.is_local(state.source) else "prerouting"
        verdict = self._hook(first, state, node)
        if verdict == "accept" and first == "prerouting":
            verdict = self._hook("input" if node.is_local(state.to) else "forward", state, node)
        return self._hook("postrouting", state, node) if verdict == "accept" else verdict

    def _hook(self, hook: str, state: _State, node: Node) -> str:
        chains = sorted((priority, name) for name, (_, own, priority) in layout.HOOKS.items() if own == hook)
        for _, name in chains:
            verdict = self._chain(name, state, node)
            if verdict in ("drop", "reject"):
                return verdict
        return "accept"

    def _chain(self, name: str, state: _State, node: Node) -> str:
        """A terminal verdict, or "" when the chain ends without one."""
        for rule in self._chains[name]:
            verdict = self._rule(rule, state, node)
            if verdict.startswith("jump "):
                verdict = self._chain(verdict[5:], state, node)
            elif verdict.startswith("goto "):
                return self._chain(verdict[5:], state, node)
            if verdict in _TERMINAL:
                return verdict
        return ""

    def _rule(self, rule: rules.NftRule, state: _State, node: Node) -> str:
        for one in rule.statements:
            verdict = self._statement(one, state, node)
            if verdict is not None:
                return verdict
        return ""

    def _statement(self, one: rules.Statement, state: _State, node: Node) -> str | None:
        """None: go on in the rule; "": it does not match; else a verdict."""
        match one:
            case matches.InSet():
                return None if self._has(one.set, self._key(one.key, state)) != one.negated else ""
            case actions.VerdictOf():
                return str(self._sets[one.map].get(self._key(one.key, state), ""))
            case actions.DestinationNat():
                return self._translate(one, state)
            case matches.To():
                inside = ipaddress.ip_address(state.to) in ipaddress.ip_network(one.cidr)
                return None if inside else ""
            case matches.From():
                inside = ipaddress.ip_address(state.source) in ipaddress.ip_network(one.cidr)
                return None if inside != one.negated else ""
            case matches.FromInterface():
                name = one.name.removesuffix("*")
                same = state.interface.startswith(name) if one.name.endswith("*") else state.interface == name
                return None if same != one.negated else ""
            case matches.FromThisNode():
                return None if node.is_local(state.source) else ""
            case matches.Connection():
                return None if one.bit == "new" or state.original[0] else ""
            case matches.Marked():
                return None if state.mark & one.mark else ""
            case actions.SetMark():
                state.mark = state.mark & ~one.mark if one.clear else state.mark | one.mark
                return None
            case actions.Masquerade():
                state.masqueraded = True
                return "accept"
            case actions.Reject():
                return "reject"
            case actions.Verdict():
                return f"{one.word} {one.chain}".rstrip()
        return None

    def _translate(self, one: actions.DestinationNat, state: _State) -> str:
        if one.map == layout.AFFINITY:
            known = self.remembered.get((f"{state.to}:{state.port}", state.source))
            if known is None:
                return ""
            address, _, port = known.rpartition(":")
        else:
            value = self._sets[one.map].get(self._key(one.key, state))
            if not isinstance(value, bytes):
                return ""
            address = str(ipaddress.ip_address(value[: self._size]))
            port = str(struct.unpack_from(">H", value, self._size)[0])
        state.original = (state.to, state.port)
        state.to, state.port = address, int(port)
        return "accept"

    def _key(self, key: keys.Key, state: _State) -> bytes:
        return b"".join([self._field(one, state) for one in key])

    def _field(self, one: keys.Field, state: _State) -> bytes:
        values: Mapping[str, str] = {
            "saddr": state.source,
            "daddr": state.to,
            "original-saddr": state.source,
            "original-daddr": state.original[0],
        }
        if one.name in values:
            return ipaddress.ip_address(values[one.name]).packed
        if one.name == "protocol":
            return bytes((_PROTOCOL[state.protocol], 0, 0, 0))
        if one.name == "random":
            return struct.pack("=I", one.offset + state.choice % one.count)
        return struct.pack(">Hxx", state.port if one.name == "dport" else state.original[1])

    def _has(self, name: str, key: bytes) -> bool:
        if name != layout.RANGES:
            return key in self._sets[name]
        frontend, address = key[: -self._size], key[-self._size :]
        for both in self._sets[name]:
            first, last = both[: len(key)], both[len(key) :]
            if first[: -self._size] == frontend and first[-self._size :] <= address <= last[-self._size :]:
                return True
        return False
