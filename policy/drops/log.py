"""Makes drops of reported packets: who, where to, refused by which policies, and what would allow it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from nodelib.clock import Clock
from nodelib.firewall.objects import Family
from nodelib.json_values import Json
from nodelib.netlink.nflog import Record
from policy.drops.model import Drop, Flow
from policy.drops.plan import packets, reported
from policy.drops.plan.document import document
from policy.drops.plan.nearest import Looks, near
from policy.drops.plan.remembered import Drops
from policy.model import VERSION, Address, Name
from policy.plan.directory import Directory
from policy.plan.program import Program

log = logging.getLogger(__name__)

WAITS = 10.0  # seconds that a question for more may wait
PAGE = 128  # drops of one answer: the loop makes each in a few milliseconds
_WAITING = 32  # such questions at once
_STALE = 10.0  # seconds after which a drop that goes on is explained anew, as pods and namespaces may have changed
_MOST_POLICIES = 64  # that are explained for one drop

Programs = Mapping[Family, Program]
# Addresses of its pods, the NetworkPolicies that isolate these, and the rule that denies.
_Group = tuple[frozenset[Address], tuple[Name, ...], str]


class Listener(Protocol):
    """Who hears of each packet that was refused."""

    def refused(self, drop: Drop) -> None: ...


class DropLog:
    """`programs`: what the kernel has. `problem`: why nothing is reported, "" if it is."""

    def __init__(
        self,
        directory: Directory,
        programs: Callable[[], Programs],
        listener: Listener,
        problem: Callable[[], str],
        clock: Clock,
    ) -> None:
        self._directory, self._programs, self._listener = directory, programs, listener
        self._problem, self._clock = problem, clock
        self._drops = Drops()
        self._began = clock.now()
        self._known: dict[Family, _Groups] = {}
        self._waiting = 0
        self._news = asyncio.Event()
        self._unreadable = 0

    async def take(self, records: list[Record]) -> None:
        """A few records: the loop has its turn after them."""
        for record in records:
            self._take(record)
        if records:
            self._news.set()
            self._news = asyncio.Event()
        await asyncio.sleep(0)

    async def answer(self, question: Json) -> Json:
        """The first PAGE drops after number `after`; with `wait` not before there is one, or WAITS has passed.

        `number` is what the next question begins after; `more`: there are more already.
        """
        after = question.get("after")
        after = after if isinstance(after, int) and 0 <= after <= self._drops.number else 0
        if question.get("wait") is True and self._drops.number <= after and self._waiting < _WAITING:
            self._waiting += 1
            try:
                async with asyncio.timeout(WAITS):
                    await self._news.wait()
            except TimeoutError:
                pass
            finally:
                self._waiting -= 1
        found = self._drops.since(after)
        page = found[:PAGE]
        return {
            "drops": [document(one) for one in page],
            "number": page[-1].number if page else self._drops.number,
            "more": len(found) > PAGE,
            "since": self._began,
            "problem": self._problem(),
            "unreadable": self._unreadable,
        }

    def _take(self, record: Record) -> None:
        direction, packet = reported.direction(record.prefix), packets.packet(record.packet)
        if direction is None or packet is None:
            self._unreadable += 1
            return
        addresses, policies, denied = self._group(record.prefix, packet.source)
        flow = packets.flow(packet, direction, addresses)
        client, server = self._directory.party(flow.client), self._directory.party(flow.server)
        now = self._clock.now()
        drop = self._drops.seen(flow, now, client.name, server.name)
        if not self._is_explained(drop, policies, denied, now):
            drop = self._explained(replace(drop, denied=denied), policies, now)
            self._drops.explained(drop)
        self._listener.refused(drop)

    def _is_explained(self, drop: Drop, policies: tuple[Name, ...], denied: str, now: float) -> bool:
        """By the rules of today: the kernel reports so few packets of a group that each may be explained anew."""
        same = policies in ((), drop.policies) and denied in ("", drop.denied)
        return same and drop.policy_changes == self._directory.policy_changes and 0 <= now - drop.explained < _STALE

    def _explained(self, drop: Drop, policies: tuple[Name, ...], now: float) -> Drop:
        flow: Flow = drop.flow
        ends = self._directory.party(flow.client), self._directory.party(flow.server)
        looks = Looks()
        known = [self._directory.policy(one) for one in policies[:_MOST_POLICIES]]
        found = tuple(near(one, flow, *ends, looks) for one in known if one is not None)
        return replace(
            drop,
            policies=policies or drop.policies,
            near=found or drop.near,
            explained=now,
            policy_changes=self._directory.policy_changes,
        )

    def _group(self, name: str, address: Address) -> _Group:
        """The group of a chain, without anything in it for a chain that is gone."""
        family = next(one for one, version in VERSION.items() if version == address.version)
        program, known = self._programs().get(family), self._known.get(family)
        # While a change is written there is no program: the last one still says what the packet met.
        if program is not None and (known is None or known.program is not program):
            known = self._known[family] = _Groups(program)
        return (frozenset(), (), "") if known is None else known.of(name)


class _Groups:
    """The groups of one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._members = reported.members(program)

    def of(self, name: str) -> _Group:
        members = self._members.get(name, frozenset())
        policies, rule = self.program.groups.get(name), self.program.denials.get(name, "")
        denied = f"ClusterNetworkPolicy: {rule}" if rule else ""
        if policies == ():
            # The only rules that refuse in a group that no NetworkPolicy isolates.
            denied = "ClusterNetworkPolicies, as it belongs to no connection"
        return members, policies or (), denied
