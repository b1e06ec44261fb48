"""The text that iptables-restore reads (iptables-restore(8)), from values. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from nodelib.errors import Invalid
from nodelib.firewall.objects import Chain, Change, Rule, TableChange, check_chain_name


def render(change: Change) -> str:
    """One input for `iptables-restore --noflush`, without tables that do not change."""
    lines: list[str] = []
    for table in change:
        if table:
            lines.extend(_table_lines(table))
    return "\n".join(lines) + "\n" if lines else ""


def chain_lines(chain: Chain) -> list[str]:
    """The rules of one chain as -A lines."""
    head = f"-A {chain.name} "
    return [head + rule_text(rule) for rule in chain.rules]


def rule_text(rule: Rule) -> str:
    """The words of one rule, quoted where iptables-restore needs it."""
    words = rule.words
    joined = " ".join(words)
    # Most rules have one word that needs quotes (the comment), none that needs escapes.
    if joined.isascii() and joined.isprintable() and '"' not in joined and "\\" not in joined and "'" not in joined:
        if joined.count(" ") == len(words) - 1 and "" not in words:
            return joined
        return " ".join([f'"{word}"' if " " in word or not word else word for word in words])
    return " ".join([_quoted(word) for word in words])


def _table_lines(change: TableChange) -> Iterable[str]:
    yield f"*{change.table}"
    for chain in change.chains:
        yield f":{check_chain_name(chain.name)} - [0:0]"
    for name in change.delete:
        yield f":{check_chain_name(name)} - [0:0]"
    for chain in change.chains:
        yield from chain_lines(chain)
    for old in change.remove_jumps:
        yield f"-D {check_chain_name(old.chain)} {rule_text(old.rule)}"
    for new in change.add_jumps:
        yield f"{'-I' if new.insert else '-A'} {check_chain_name(new.chain)} {rule_text(new.rule)}"
    for name in change.delete:
        yield f"-X {name}"
    yield "COMMIT"


def _quoted(word: str) -> str:
    if any(ord(character) < 32 or ord(character) == 127 for character in word):
        # A line break would end the rule and begin another one.
        raise Invalid(f"{word!r} has a control character", obj="iptables", step="write a rule")
    if word and not any(character in word for character in " \"'\\") and word.isascii():
        return word
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'
