"""Rules, chains and changes as frozen values. `render.py` turns them into text, `parse.py` reads them from text. Pure.

The words of a rule are those of iptables' command line, unquoted and in order; nothing here interprets them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from nodelib.errors import Invalid

MAX_CHAIN_NAME = 28  # XT_EXTENSION_MAXNAMELEN - 1, linux/netfilter/x_tables.h
_CHAIN_NAME = re.compile(rf"(?![-!:*#])[^\s\x00-\x20]{{1,{MAX_CHAIN_NAME}}}")

BUILT_IN = {
    "filter": ("INPUT", "FORWARD", "OUTPUT"),
    "nat": ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"),
    "mangle": ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"),
    "raw": ("PREROUTING", "OUTPUT"),
}


class Family(StrEnum):
    """Address families under the names of the API (v1.IPFamily)."""

    IPV4 = "IPv4"
    IPV6 = "IPv6"


Words = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule, without its chain: `Rule(("-s", "10.0.0.0/8", "-j", "ACCEPT"))`."""

    words: Words

    @property
    def target(self) -> str:
        """The chain or target after -j or -g, "" when the rule has none."""
        for index, word in enumerate(self.words[:-1]):
            if word in ("-j", "-g", "--jump", "--goto"):
                return self.words[index + 1]
        return ""


def rule(*parts: Words | str) -> Rule:
    """Join words and groups of words: `rule(comment("why"), "-s", "10.0.0.1", jump("DROP"))`."""
    words: list[str] = []
    for part in parts:
        if isinstance(part, str):
            words.append(part)
        else:
            words.extend(part)
    return Rule(tuple(words))


def comment(text: str) -> Words:
    return ("-m", "comment", "--comment", text)


def jump(target: str) -> Words:
    return ("-j", target)


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain with all rules that it should have."""

    name: str
    rules: tuple[Rule, ...] = ()


@dataclass(frozen=True, slots=True)
class Jump:
    """One of our rules in a chain that is not ours, at its beginning, or without `insert` at its end."""

    chain: str
    rule: Rule
    insert: bool = True


@dataclass(frozen=True, slots=True)
class TableChange:
    """The changes to one table in one transaction, in this order.

    `chains` are created or emptied, then filled; `remove_jumps` must exist; `add_jumps` must not exist yet; the chains
    in `delete` are emptied and removed, and need not exist.
    """

    table: str
    chains: tuple[Chain, ...] = ()
    remove_jumps: tuple[Jump, ...] = ()
    add_jumps: tuple[Jump, ...] = ()
    delete: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.chains or self.remove_jumps or self.add_jumps or self.delete)

    @property
    def rule_count(self) -> int:
        return sum(len(chain.rules) for chain in self.chains) + len(self.add_jumps)


Change = tuple[TableChange, ...]


@dataclass(frozen=True, slots=True)
class TableContent:
    """A table as the kernel has it: every chain, including built-in ones, in the kernel's order.

    `fingerprints` replace the rules of chains whose rules were not kept (see `fingerprint`). `counters`: how many
    packets each rule of a chain matched, if that was saved (iptables-save -c). `dropping`: built-in chains with the
    policy DROP.
    """

    table: str
    chains: dict[str, tuple[Rule, ...]]
    fingerprints: dict[str, int] = field(default_factory=dict)
    counters: dict[str, tuple[int, ...]] = field(default_factory=dict)
    dropping: frozenset[str] = frozenset()

    def has(self, chain: str) -> bool:
        return chain in self.chains

    def rules(self, chain: str) -> tuple[Rule, ...]:
        return self.chains.get(chain, ())


def fingerprint(rules: Iterable[Words], start: int = 0) -> int:
    """A number for the words of rules in their order. Within one process, equal rules have equal numbers."""
    number = start
    for words in rules:
        number = hash((number, words))
    return number


def check_chain_name(name: str) -> str:
    """The name itself. Raises Invalid if iptables would refuse or misread it."""
    if not _CHAIN_NAME.fullmatch(name):
        raise Invalid(
            f"{name!r} is not a chain name: 1 to {MAX_CHAIN_NAME} visible characters, not starting with one of -!:*#",
            obj="iptables",
            step="name a chain",
        )
    return name
