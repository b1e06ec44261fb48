"""nftables tables with a span for each transaction and each reading, where what calls them is traced."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from nodelib.firewall.objects import Family
from nodelib.nft.edge import Table
from nodelib.nft.wire import Element, Message
from nodelib.traces.steps import OpenSpan, Step, step


class TracedTable:
    """A table whose elements are written, with spans."""

    def __init__(self, table: Table) -> None:
        self._table = table

    @property
    def family(self) -> Family:
        return self._table.family

    @property
    def name(self) -> str:
        return self._table.name

    async def text(self, transaction: str) -> None:
        with self._step("write") as span:
            _put(span, "nodewright.bytes", transaction)
            await self._table.text(transaction)

    async def write(
        self, delete: Sequence[Element], add: Sequence[Element], *, rules: Sequence[Message] = (), atomic: bool = True
    ) -> None:
        with self._step("write") as span:
            _put(span, "nodewright.elements.removed", delete)
            _put(span, "nodewright.elements.added", add)
            _put(span, "nodewright.messages", rules)
            await self._table.write(delete, add, rules=rules, atomic=atomic)

    async def elements(self, sets: Iterable[str]) -> dict[str, set[bytes]] | None:
        with self._step("read"):
            return await self._table.elements(sets)

    async def rules_digest(self) -> str:
        with self._step("read"):
            return await self._table.rules_digest()

    async def digests(self) -> dict[str, str]:
        with self._step("read"):
            return await self._table.digests()

    async def exists(self) -> bool:
        return await self._table.exists()

    def _step(self, name: str) -> Step:
        return _at(name, self.name, self.family)


class Batches(Protocol):
    """What is needed of a table to which whole batches are written."""

    async def commit(self, batch: list[Message]) -> None: ...

    async def elements(self, sets: tuple[str, ...]) -> dict[str, set[bytes]] | None: ...

    async def digests(self, chains: Collection[str] | None = None) -> dict[str, str]: ...


class TracedBatches:
    """`table`, called `name`, with spans."""

    def __init__(self, table: Batches, name: str, family: Family) -> None:
        self._table, self._name, self._family = table, name, family

    async def commit(self, batch: list[Message]) -> None:
        with _at("write", self._name, self._family) as span:
            _put(span, "nodewright.messages", batch)
            await self._table.commit(batch)

    async def elements(self, sets: tuple[str, ...]) -> dict[str, set[bytes]] | None:
        with _at("read", self._name, self._family):
            return await self._table.elements(sets)

    async def digests(self, chains: Collection[str] | None = None) -> dict[str, str]:
        with _at("read", self._name, self._family):
            return await self._table.digests(chains)


def _at(name: str, table: str, family: Family) -> Step:
    made = step(name)
    if isinstance(made, OpenSpan):
        made.attributes |= {"nodewright.tables": table, "network.type": family.lower()}
    return made


def _put(span: OpenSpan | None, key: str, counted: Sequence[object]) -> None:
    if span is not None:
        span.attributes[key] = len(counted)
