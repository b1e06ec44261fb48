"""iptables with a span for each transaction and each reading, where what calls it is traced."""

from __future__ import annotations

from collections.abc import Collection

from nodelib.firewall.iptables import Tables
from nodelib.firewall.objects import Change, Family, TableContent
from nodelib.traces.steps import step


class TracedTables:
    """`tables`, with spans."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    @property
    def family(self) -> Family:
        return self._tables.family

    async def restore(self, change: Change) -> None:
        with step("write") as span:
            if span is not None:
                span.attributes["nodewright.tables"] = ",".join(one.table for one in change)
                span.attributes["nodewright.chains"] = sum(len(one.chains) + len(one.delete) for one in change)
                span.attributes["nodewright.rules"] = sum(one.rule_count for one in change)
            await self._tables.restore(change)

    async def save(self, table: str, *, only: Collection[str] | None = None) -> TableContent:
        with step("read") as span:
            if span is not None:
                span.attributes["nodewright.tables"] = table
            return await self._tables.save(table, only=only)

    async def chain_exists(self, table: str, chain: str) -> bool:
        return await self._tables.chain_exists(table, chain)
