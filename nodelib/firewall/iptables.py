"""The edge to iptables: one transaction in, one table out. Decides nothing.

Drives the command line tools, as upstream and every other user of iptables do: libiptc reaches only the
legacy tables, and the nft variant has no library. Every write goes through one `iptables-restore
--noflush`, atomic per table.
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
from nodelib.firewall.backend import DEFAULT, Backend
from nodelib.firewall.objects import Change, Family, Rule, TableContent, check_chain_name
from nodelib.firewall.parse import parse_tables
from nodelib.firewall.render import render

log = logging.getLogger(__name__)

_WAIT = ("-w", "5")  # seconds for the lock of the legacy tools; the nft ones take and ignore it
_TIMEOUT = 300.0
_PARSE_IN_THREAD = 200_000  # characters
_RENDER_IN_THREAD = 1_000  # rules
_LINE = re.compile(r"line:? (\d+)")

Run = Callable[..., Awaitable[Completed]]


class Tables(Protocol):
    """What users of iptables need; `Iptables` is the real one, `fake.FakeIptables` interprets."""

    @property
    def family(self) -> Family: ...

    async def restore(self, change: Change) -> None: ...

    async def save(self, table: str, *, only: Collection[str] | None = None) -> TableContent: ...

    async def chain_exists(self, table: str, chain: str) -> bool: ...


class RestoreError(Temporary):
    """A transaction that was refused as a whole; `line` is the offending one, "" when not known."""

    def __init__(self, message: str, *, line: str, family: Family) -> None:
        super().__init__(
            f"{message}; offending line: {line}" if line else message,
            obj=f"{family} rules",
            step="iptables-restore",
            action="The refused table is as it was; tables before it in the input are written. If it goes on, look for "
            "a kernel module or an iptables extension that is missing, or for another program that removes our chains.",
        )
        self.line = line


class Iptables:
    """One family through one backend. Transactions are sent one at a time."""

    def __init__(self, family: Family, backend: Backend = DEFAULT, *, run: Run = command.run) -> None:
        self._family = family
        self._backend = backend
        self._run = run
        self._lock = asyncio.Lock()

    @property
    def family(self) -> Family:
        return self._family

    @property
    def backend(self) -> Backend:
        return self._backend

    async def restore(self, change: Change) -> None:
        """Apply `change`, each table all or nothing, tables in their order. Raises RestoreError, CommandError."""
        large = sum(table.rule_count for table in change) > _RENDER_IN_THREAD
        text = await asyncio.to_thread(render, change) if large else render(change)
        if text:
            await self.restore_text(text)

    async def restore_text(self, text: str) -> None:
        """The same for text already rendered."""
        argv = (self._backend.restore(self._family), *_WAIT, "--noflush", "--counters")
        async with self._lock:
            done = await self._run(argv, stdin=text.encode(), timeout=_TIMEOUT, check=False)
        if done.returncode != 0:
            raise _restore_error(done, text, self._family)

    async def save(self, table: str, *, only: Collection[str] | None = None) -> TableContent:
        """A whole table; with `only`, fingerprints stand for the rules of other chains. Raises CommandError."""
        done = await self._run((self._backend.save(self._family), "-t", table), timeout=_TIMEOUT)
        text = done.text
        if len(text) > _PARSE_IN_THREAD:
            tables = await asyncio.to_thread(parse_tables, text, only=only)
        else:
            tables = parse_tables(text, only=only)
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
                step="look at table nat",
                action=f"Install iptables and check that `{self._backend.tool(self._family)} -t nat -S` works as root.",
            ) from error

    async def _iptables(self, table: str, *words: str, check: bool = True) -> Completed:
        argv = (self._backend.tool(self._family), *_WAIT, "-t", table, *words)
        return await self._run(argv, timeout=_TIMEOUT, check=check)


def _restore_error(done: Completed, text: str, family: Family) -> RestoreError:
    said = done.stderr.decode(errors="replace").strip()
    found = _LINE.search(said)
    lines = text.splitlines()
    line = ""
    if found and 0 < int(found[1]) <= len(lines):
        line = lines[int(found[1]) - 1]
    return RestoreError(f"exit status {done.returncode}: {said[:1000]}", line=line, family=family)
