"""Reads the text that iptables-save prints and iptables-restore takes into values. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from nodelib.errors import Invalid
from nodelib.firewall.objects import Rule, TableContent, fingerprint

_WORD = re.compile(r'"((?:[^"\\]|\\.)*)"|([^\s"]+)')
_ESCAPE = re.compile(r"\\(.)")


def split_words(line: str) -> list[str]:
    """The words of one line. Double quotes group words; inside them a backslash escapes."""
    if '"' not in line:
        return line.split()
    words = []
    for quoted, plain in _WORD.findall(line):
        words.append(plain or _ESCAPE.sub(r"\1", quoted))
    return words


def parse_tables(text: str, *, only: Collection[str] | None = None) -> dict[str, TableContent]:
    """The tables in the output of iptables-save. With `only`, other chains keep just their names and fingerprints.

    Raises Invalid, naming the line, for text that iptables-save does not write.
    """
    tables: dict[str, TableContent] = {}
    chains: dict[str, list[Rule]] = {}
    prints: dict[str, int] = {}
    counts: dict[str, list[int]] = {}
    dropping: set[str] = set()
    table = ""
    for number, (line, packets) in enumerate(_lines(text), 1):
        kind = line[:1]
        if kind == "-":
            verb, chain, rest = _rule_line(line, number)
            if verb != "-A" or chain not in chains:
                raise _bad(line, number)
            words = tuple(split_words(rest))
            if only is None or chain in only:
                chains[chain].append(Rule(words))
                if packets is not None:
                    counts.setdefault(chain, []).append(packets)
            else:
                prints[chain] = fingerprint((words,), prints.get(chain, 0))
        elif kind == ":":
            name, policy, *_ = (*line[1:].split(" "), "-")
            chains[name] = []
            if policy == "DROP":
                dropping.add(name)
        elif kind == "*":
            table, chains, prints, counts, dropping = line[1:].strip(), {}, {}, {}, set()
        elif line == "COMMIT":
            tables[table] = TableContent(
                table,
                {name: tuple(rules) for name, rules in chains.items()},
                prints,
                {name: tuple(packets) for name, packets in counts.items()},
                frozenset(dropping),
            )
        elif kind not in ("#", ""):
            raise _bad(line, number)
    return tables


def _rule_line(line: str, number: int) -> tuple[str, str, str]:
    parts = line.split(" ", 2)
    if len(parts) < 2:
        raise _bad(line, number)
    return parts[0], parts[1], parts[2] if len(parts) == 3 else ""


def _lines(text: str) -> Iterator[tuple[str, int | None]]:
    for line in text.splitlines():
        # With counters (-c) every rule starts with "[packets:bytes] ".
        if line.startswith("[") and "] " in line:
            counted, rest = line[1:].split("] ", 1)
            packets = counted.partition(":")[0]
            yield rest, int(packets) if packets.isdigit() else None
        else:
            yield line, None


def _bad(line: str, number: int) -> Invalid:
    return Invalid(f"line {number} is not understood: {line!r}", obj="iptables-save", step="read its output")
