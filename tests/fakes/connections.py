"""A node's table of connections and the rules that bound it, in memory: entries are counted, and cut as asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from ipaddress import ip_address

from cni.model import Connections, Held, PodAddresses
from cni.plan import connection_rules as rules
from nodelib.errors import Temporary
from nodelib.firewall.objects import Family
from nodelib.netlink.framing import attributes
from nodelib.nft import wire
from nodelib.nft.edge import NftError
from nodelib.nft.wire import Element, Message


class FakeConnections:
    """`held` is what pods have, `others` what else is there. `fail`: every count fails. `tracked` False: no table."""

    def __init__(self, limit: int) -> None:
        self.limit, self.others, self.held = limit, 0, list[Held]()
        self.counts = 0
        self.fail, self.tracked = False, True

    def usage(self) -> tuple[int, int] | None:
        return (self.others + sum(one.total for one in self.held), self.limit) if self.tracked else None

    async def count(self, pods: PodAddresses, most: int, cuts: Sequence[Held] = ()) -> Connections:
        if self.fail:
            raise Temporary("killed", obj="table of connections", step="count them")
        self.counts += 1
        before = sum(one.total for one in self.held)
        for cut in cuts:
            self.held = [
                replace(
                    one,
                    unanswered=one.unanswered - cut.unanswered,
                    passing=one.passing - cut.passing,
                    living=one.living - cut.living,
                )
                if one.holder == cut.holder
                else one
                for one in self.held
            ]
        after = sum(one.total for one in self.held)
        return Connections(self.others + after, tuple(self.held), before - after)


class FakeBounds:
    """One family's table of plan/connection_rules.py: whether it is there, and what is in its sets."""

    def __init__(self, family: Family = Family.IPV4) -> None:
        self._family = family
        self.there = False
        self.elements: set[Element] = set()
        self.dropped = 0
        self.refuse = False

    @property
    def family(self) -> Family:
        return self._family

    async def commit(self, batch: list[Message]) -> None:
        self._check()
        self.there, self.elements = batch != rules.removal(), set()
        for kind, _, body in batch:
            if kind == wire.NEW_ELEMENTS:
                name = dict(attributes(body))[2].rstrip(b"\0").decode()
                self.elements |= {Element(name, raw) for raw in wire.elements_of(bytes(4) + body)}

    async def write(self, delete: Sequence[Element], add: Sequence[Element]) -> None:
        self._check()
        if not self.there:
            raise NftError("No such file or directory", family=self.family)
        assert self.elements >= set(delete)
        self.elements = (self.elements - set(delete)) | set(add)

    async def counted(self, chains: Iterable[str]) -> dict[str, int]:
        return dict.fromkeys(chains, 0) | {rules.CHAINS[0]: self.dropped} if self.there else {}

    def addresses(self, name: str) -> set[str]:
        """The addresses in a set."""
        return {str(ip_address(one.key)) for one in self.elements if one.set == name}

    def _check(self) -> None:
        if self.refuse:
            raise NftError("Operation not supported", family=self.family)
