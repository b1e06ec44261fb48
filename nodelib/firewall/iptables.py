"""The edge to iptables: writes transactions and reads tables. Decides nothing.

It runs the command line tools, as upstream and all other users of iptables do: libiptc reaches only the legacy tables,
and the nft variant has no library. Every write is one `iptables-restore --noflush`, atomic per table.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Collection
from typing import Protocol

from nodelib import command
from nodelib.command import CommandError, Completed
from nodelib.errors import NotFound, Temporary
from nodelib.firewall.objects import Change, Family, Rule, TableContent, check_chain_name
from nodelib.firewall.parse import parse_tables
from nodelib.firewall.render import render
from nodelib.firewall.variant import DEFAULT, Variant
from nodelib.threads import in_thread_if

log = logging.getLogger(__name__)

_WAIT = ("-w", "5")  # seconds for the lock of the legacy tools; the nft ones take and ignore it
_TIMEOUT = 300.0
_PARSE_IN_THREAD = 200_000  # characters
_RENDER_IN_THREAD = 1_000  # rules
_LINE = re.compile(r"line:? (\d+)")

Run = Callable[..., Awaitable[Completed]]


class Tables(Protocol):
    """What users of iptables need. `Iptables` is the real one, `tests/fakes/fake_iptables.py` an interpreting fake."""

    @property
    def family(self) -> Family: ...

    async def restore(self, change: Change) -> None: ...

    async def save(self, table: str, *, only: Collection[str] | None = None) -> TableContent: ...

    async def chain_exists(self, table: str, chain: str) -> bool: ...


class RestoreError(Temporary):
    """A refused transaction; `line` is the offending line, "" when it is not known."""

    def __init__(self, message: str, *, line: str, family: Family) -> None:
        super().__init__(
            f"{message}; offending line: {line}" if line else message,
            obj=f"{family} rules",
            step="iptables-restore",
            action="The refused table is unchanged; tables before it in the input are written. If this persists, look "
            "for a missing kernel module or iptables extension, or for another program that removes our chains.",
        )
        self.line = line


class Iptables:
    """One address family through one variant. Transactions are sent one at a time."""

    def __init__(self, family: Family, variant: Variant = DEFAULT, *, run: Run = command.run) -> None:
        self._family = family
        self._variant = variant
        self._run = run
        self._lock = asyncio.Lock()

    @property
    def family(self) -> Family:
        return self._family

    @property
    def variant(self) -> Variant:
        return self._variant

    async def restore(self, change: Change) -> None:
        """Apply `change`, each table all or nothing, tables in their order. Raises RestoreError, CommandError."""
        large = sum(table.rule_count for table in change) > _RENDER_IN_THREAD
        text = await in_thread_if(large, render, change)
        if text:
            await self.restore_text(text)

    async def restore_text(self, text: str) -> None:
        """The same for text already rendered."""
        argv = (self._variant.restore(self._family), *_WAIT, "--noflush", "--counters")
        async with self._lock:
            done = await self._run(argv, stdin=text.encode(), timeout=_TIMEOUT, check=False)
        if done.returncode != 0:
            raise _restore_error(done, text, self._family)

    async def save(self, table: str, *, only: Collection[str] | None = None) -> TableContent:
        """Read a whole table; with `only`, just fingerprints of the other chains' rules. Raises CommandError."""
        done = await self._run((self._variant.save(self._family), "-t", table), timeout=_TIMEOUT)
        text = done.text
        tables = await in_thread_if(len(text) > _PARSE_IN_THREAD, parse_tables, text, only=only)
        return tables.get(table) or TableContent(table, {})

    async def chain_exists(self, table: str, chain: str) -> bool:
        done = await self._iptables(table, "-S", check_chain_name(chain), check=False)
        if done.returncode not in (0, 1):
            raise CommandError(done.argv, done.returncode, done.stderr)
        return done.returncode == 0

    async def has_rule(self, table: str, chain: str, rule: Rule) -> bool:
        done = await self._iptables(table, "-C", check_chain_name(chain), *rule.words, check=False)
        if done.returncode not in (0, 1, 2):
            raise CommandError(done.argv, done.returncode, done.stderr)
        return done.returncode == 0

    async def present(self) -> None:
        """Raises NotFound when this family cannot be used here (no tool, or no support in the kernel)."""
        try:
            await self._iptables("nat", "-S", "POSTROUTING")
        except CommandError as error:
            raise NotFound(
                str(error),
                obj=f"{self._family} iptables",
                step="read table nat",
                action=f"Install iptables and check that `{self._variant.tool(self._family)} -t nat -S` works as root.",
            ) from error

    async def _iptables(self, table: str, *words: str, check: bool = True) -> Completed:
        argv = (self._variant.tool(self._family), *_WAIT, "-t", table, *words)
        return await self._run(argv, timeout=_TIMEOUT, check=check)


def _restore_error(done: Completed, text: str, family: Family) -> RestoreError:
    output = done.stderr.decode(errors="replace").strip()
    found = _LINE.search(output)
    lines = text.splitlines()
    line = ""
    if found and 0 < int(found[1]) <= len(lines):
        line = lines[int(found[1]) - 1]
    return RestoreError(f"exit status {done.returncode}: {output[:1000]}", line=line, family=family)
