"""An nftables table in memory that takes transactions as the kernel does: all or nothing, conflicts refused."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence

from nodelib.firewall.objects import Family
from nodelib.netlink.framing import attributes
from nodelib.nft import objects, wire
from nodelib.nft.edge import NftError, digest_of
from nodelib.nft.wire import Element, Message, element_data


class FakeNft:
    """`sets`: set -> key -> element; `chains`: chain -> bodies of its rules. `fail_next`: refuse that many writes."""

    def __init__(self, family: Family = Family.IPV4) -> None:
        self.family = family
        self.name = "nodewright-proxy"
        self.there = False
        self.sets: dict[str, dict[bytes, bytes]] = {}
        self.chains: dict[str, list[bytes]] = {}
        self.fail_next = 0
        self.refused: set[bytes] = set()  # keys that it takes for wrong
        self.writes: list[tuple[list[Element], list[Element], list[Message]]] = []

    async def text(self, transaction: str) -> None:
        for line in transaction.splitlines():
            words = line.split()
            match words[:2]:
                case ["add", "table"]:
                    self.there = True
                case ["delete", "table"]:
                    self.there, self.sets, self.chains = False, {}, {}
                case ["add", "set" | "map"]:
                    self.sets.setdefault(words[4], {})
                case ["add", "chain"]:
                    self.chains.setdefault(words[4], [])
                case _:
                    raise AssertionError(line)

    async def write(
        self, delete: Sequence[Element], add: Sequence[Element], *, rules: Sequence[Message] = (), atomic: bool = True
    ) -> None:
        if self.fail_next:
            self.fail_next -= 1
            raise self._refused(errno.ENOMEM, "asked to")
        sets = {name: dict(held) for name, held in self.sets.items()}
        chains = {name: list(held) for name, held in self.chains.items()}
        for kind, _, body in rules:
            if kind == wire.NEW_ELEMENTS:
                self._add(sets, dict(attributes(body)))
            else:
                self._rule(chains, kind, dict(attributes(body)), body)
        for name, raw in delete:
            if sets[name].pop(wire.element_key(raw), None) is None:
                raise self._refused(errno.ENOENT, f"delete from {name}")
        for name, raw in add:
            if wire.element_key(raw) in self.refused:
                raise NftError("Invalid argument", family=self.family, code=errno.EINVAL, element=Element(name, raw))
            if sets[name].setdefault(wire.element_key(raw), raw) != raw:
                raise self._refused(errno.EEXIST, f"add to {name}")
            data = element_data(raw)
            if isinstance(data, str) and data.startswith("goto ") and data[5:] not in chains:
                raise self._refused(errno.ENOENT, data)
        self.sets, self.chains = sets, chains
        self.writes.append((list(delete), list(add), list(rules)))

    async def elements(self, sets: Iterable[str]) -> dict[str, set[bytes]] | None:
        return {name: set(self.sets[name].values()) for name in sets} if self.there else None

    async def rules_digest(self) -> str:
        return digest_of(await self.digests()) if self.there else ""

    async def digests(self) -> dict[str, str]:
        return {name: repr(rules) for name, rules in self.chains.items() if rules}

    async def exists(self) -> bool:
        return self.there

    def state(self) -> dict[str, dict[bytes, bytes]]:
        return {name: dict(held) for name, held in self.sets.items()}

    def _add(self, sets: dict[str, dict[bytes, bytes]], parts: dict[int, bytes]) -> None:
        """What is there already with the same value stays as it is."""
        held = sets[_name(parts[2])]
        for _, raw in attributes(parts[3]):
            if element_data(held.setdefault(wire.element_key(raw), raw)) != element_data(raw):
                raise self._refused(errno.EBUSY, f"add to {_name(parts[2])}")

    def _rule(self, chains: dict[str, list[bytes]], kind: int, parts: dict[int, bytes], body: bytes) -> None:
        if kind == wire.NEW_CHAIN:
            chains.setdefault(_name(parts[3]), [])
            return
        if kind == objects.DELETE_CHAIN:
            self._remove(chains, _name(parts[3]))
            return
        chain = _name(parts[2])
        if chain not in chains:
            raise self._refused(errno.ENOENT, f"chain {chain}")
        if kind == wire.DELETE_RULE:
            chains[chain].clear()
        else:
            chains[chain].append(body)

    def _remove(self, chains: dict[str, list[bytes]], name: str) -> None:
        led_to = {element_data(raw) for held in self.sets.values() for raw in held.values()}
        if chains.get(name) or f"goto {name}" in led_to:
            raise self._refused(errno.EBUSY, f"chain {name}")
        if name not in chains:
            raise self._refused(errno.ENOENT, f"chain {name}")
        del chains[name]

    def _refused(self, code: int, what: str) -> NftError:
        return NftError(what, family=self.family, code=code)


def _name(value: bytes) -> str:
    return value.rstrip(b"\0").decode()
