"""iptables in memory: interprets the same input as the real one and refuses what that refuses.

`FakeIptables` implements the edge's Protocol. It checks each transaction as the kernel does (chains that do not exist,
chains that are still in use), applies it completely or not at all, and `dump()`s sorted text. `fail_next` makes the
next restores fail.
"""

from __future__ import annotations

from collections.abc import Collection

from nodelib.errors import NotFound
from nodelib.firewall.canonical import canonical, chain_fingerprint
from nodelib.firewall.iptables import RestoreError
from nodelib.firewall.objects import BUILT_IN, Change, Family, Rule, TableContent
from nodelib.firewall.parse import split_words
from nodelib.firewall.render import render, rule_text

_TARGETS = frozenset(
    {"ACCEPT", "DROP", "RETURN", "REJECT", "DNAT", "SNAT", "MASQUERADE", "REDIRECT", "MARK", "LOG", "TCPMSS", ""}
)

Chains = dict[str, list[Rule]]


class FakeIptables:
    """The state of one family. `inputs` keeps every accepted input, newest last."""

    def __init__(self, family: Family = Family.IPV4) -> None:
        self._family = family
        self.tables: dict[str, Chains] = {}
        self.inputs: list[str] = []
        self.fail_next = 0
        self.flush()

    @property
    def family(self) -> Family:
        return self._family

    def flush(self, *tables: str) -> None:
        """What somebody else's `iptables -F; iptables -X` does, in all tables or the given ones."""
        for table in tables or BUILT_IN:
            self.tables[table] = {chain: [] for chain in BUILT_IN[table]}

    async def restore(self, change: Change) -> None:
        self.load_change(change)

    def load_change(self, change: Change) -> None:
        """restore() for callers without a loop."""
        text = render(change)
        if text:
            self.load(text)

    def load(self, text: str) -> None:
        """One input of iptables-restore --noflush. Raises RestoreError, with nothing of that table changed."""
        if self.fail_next > 0:
            self.fail_next -= 1
            raise RestoreError("exit status 4: made to fail", line="", family=self._family)
        table, draft = "", {}
        for line in text.splitlines():
            if line.startswith("*"):
                table = line[1:]
                draft = {name: list(rules) for name, rules in self.tables[table].items()}
            elif line == "COMMIT":
                self._check(draft, text)
                self.tables[table] = draft
            else:
                self._apply(draft, line)
        self.inputs.append(text)

    async def save(self, table: str, *, only: Collection[str] | None = None) -> TableContent:
        chains = self.tables[table]
        left_out = {name: rules for name, rules in chains.items() if only is not None and name not in only}
        return TableContent(
            table,
            {name: () if name in left_out else tuple(rules) for name, rules in chains.items()},
            {name: chain_fingerprint(rules, self._family) for name, rules in left_out.items() if rules},
        )

    async def chain_exists(self, table: str, chain: str) -> bool:
        return chain in self.tables[table]

    async def has_rule(self, table: str, chain: str, rule: Rule) -> bool:
        wanted = canonical(rule, self._family)
        return any(canonical(there, self._family) == wanted for there in self.tables[table].get(chain, ()))

    async def present(self) -> None:
        if not self.tables:
            raise NotFound("no tables", obj=f"{self._family} iptables")

    def dump(self, *, skip: Collection[str] = ()) -> str:
        """All tables that are not empty; tables and chains sorted by name, rules in their order."""
        lines: list[str] = []
        for table in sorted(self.tables):
            chains = {name: rules for name, rules in self.tables[table].items() if name not in skip}
            own = [name for name in chains if name not in BUILT_IN[table] or chains[name]]
            if not own:
                continue
            lines.append(f"*{table}")
            lines.extend(f":{name} - [0:0]" for name in sorted(own))
            for name in sorted(own):
                lines.extend(f"-A {name} {rule_text(rule)}".rstrip() for rule in chains[name])
            lines.append("COMMIT")
        return "\n".join(lines) + "\n"

    def content(self) -> dict[str, TableContent]:
        """All tables, for the tracer."""
        return {
            table: TableContent(table, {name: tuple(rules) for name, rules in chains.items()})
            for table, chains in self.tables.items()
        }

    def _apply(self, draft: Chains, line: str) -> None:
        if line.startswith(":"):
            draft[line[1:].split(" ", 1)[0]] = []
            return
        verb, chain, *rest = line.split(" ", 2)
        rule = Rule(tuple(split_words(rest[0] if rest else "")))
        if chain not in draft:
            raise self._refused("No chain/target/match by that name", line)
        if verb == "-A":
            draft[chain].append(rule)
        elif verb == "-I":
            draft[chain].insert(0, rule)
        elif verb == "-D":
            self._delete_rule(draft[chain], rule, line)
        elif verb == "-X":
            if draft.pop(chain):
                raise self._refused("Directory not empty", line)
        else:
            raise self._refused(f"unknown command {verb}", line)

    def _delete_rule(self, rules: list[Rule], rule: Rule, line: str) -> None:
        wanted = canonical(rule, self._family)
        for index, there in enumerate(rules):
            if canonical(there, self._family) == wanted:
                del rules[index]
                return
        raise self._refused("Bad rule (does a matching rule exist in that chain?)", line)

    def _check(self, draft: Chains, text: str) -> None:
        for chain, rules in draft.items():
            for rule in rules:
                if rule.target not in _TARGETS and rule.target not in draft:
                    line = f"-A {chain} {rule_text(rule)}"
                    raise self._refused(f"Chain {rule.target!r} does not exist", line if line in text else "")

    def _refused(self, message: str, line: str) -> RestoreError:
        return RestoreError(f"exit status 1: {message}", line=line, family=self._family)
