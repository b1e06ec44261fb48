"""What a node answers on the link for the addresses that it announces. Pure: the time is an argument.

While this daemon is in touch with the API server (`certain`), the table says whose an address is, and who else claims
it is told so. While it is not, another node may have been given the address: then it asks the link before it goes on
answering, and every second from then on, and gives way to whoever says that he has it.
"""

from __future__ import annotations

from collections.abc import Iterable

from loadbalancer.model import Address
from loadbalancer.plan import frames
from loadbalancer.plan.frames import Claim, Question

HOLD = 0.2  # seconds that nothing is answered after the link was asked
PROBE_EVERY = 1.0
ANNOUNCE_AT = (0.0, 0.3, 1.0, 3.0, 8.0)  # seconds after it became ours: a frame may be lost
_DEFEND_EVERY = 1.0
_AGAIN = 0.01  # seconds in which one asker is answered once
_MOST_RECENT = 1024
_MOST_AT_ONCE = 128  # addresses that are probed or announced at one moment


class Responder:
    """`mac`: of our interface. What is returned is to be sent."""

    def __init__(self) -> None:
        self.mac = b""
        self.conflicts = 0
        self._own: dict[Address, float] = {}  # when each became ours
        self._announced: dict[Address, int] = {}  # how often
        self._given_way: set[Address] = set()
        self._defended: dict[Address, float] = {}
        self._recent: dict[tuple[Address, bytes], float] = {}
        self._certain = True
        self._hold = self._probed = float("-inf")
        self._waiting: list[Question] = []  # until the hold is over

    @property
    def answered(self) -> frozenset[Address]:
        """The addresses that others find at this node."""
        return frozenset(self._own.keys() - self._given_way)

    @property
    def given_way(self) -> frozenset[Address]:
        return frozenset(self._given_way)

    def assign(self, addresses: Iterable[Address], now: float) -> None:
        """These are ours, by the table or by what we announced before this process began."""
        wanted = frozenset(addresses)
        for gone in self._own.keys() - wanted:
            for known in (self._own, self._announced, self._defended):
                known.pop(gone, None)
            self._given_way.discard(gone)
        for new in sorted(wanted - self._own.keys(), key=lambda one: (one.version, int(one))):
            self._own[new] = now

    def announce_again(self, now: float) -> None:
        """The link was away: nobody may know any more where our addresses are."""
        self._announced.clear()
        self._own = dict.fromkeys(self._own, now)

    def handle(self, received: Iterable[bytes], now: float, *, certain: bool) -> list[bytes]:
        """Claims first: what others say now is newer than questions that have waited."""
        messages = [one for frame in received for one in frames.read(frame) if one.address in self._own]
        out = self._turn(now, certain=certain)
        for one in messages:
            if isinstance(one, Claim) and one.mac != self.mac:
                out += self._claimed(one, now)
        self._waiting += [one for one in messages if isinstance(one, Question) and one.mac != self.mac]
        del self._waiting[_MOST_RECENT:]
        return out + self._answers(now)

    def tick(self, now: float, *, certain: bool) -> list[bytes]:
        """What is due without being asked: announcements of what is new, questions while we are not certain."""
        out = self._turn(now, certain=certain)
        if not certain and now - self._probed >= PROBE_EVERY:
            out += self._probes(now)
        if now < self._hold:
            return out
        out += self._answers(now)
        due = [one for one in self._own if one not in self._given_way and self._due(one, now)]
        for address in due[:_MOST_AT_ONCE]:
            self._announced[address] = self._announced.get(address, 0) + 1
            out += frames.announcements(address, self.mac)
        return out

    def _due(self, address: Address, now: float) -> bool:
        times = self._announced.get(address, 0)
        return times < len(ANNOUNCE_AT) and now - self._own[address] >= ANNOUNCE_AT[times]

    def _turn(self, now: float, *, certain: bool) -> list[bytes]:
        """From certain to uncertain or back."""
        if certain == self._certain:
            return []
        self._certain = certain
        if not certain:
            self._hold = now + HOLD
            return self._probes(now)
        self._hold = now
        for address in self._given_way:
            self._own[address] = now
            self._announced.pop(address, None)
        self._given_way.clear()
        return []

    def _probes(self, now: float) -> list[bytes]:
        self._probed = now
        return [frames.probe(one, self.mac) for one in list(self._own)[:_MOST_AT_ONCE]]

    def _claimed(self, claim: Claim, now: float) -> list[bytes]:
        if not self._certain:
            self._given_way.add(claim.address)
            return []
        if now - self._defended.get(claim.address, float("-inf")) < _DEFEND_EVERY:
            return []
        self.conflicts += 1
        self._defended[claim.address] = now
        return frames.announcements(claim.address, self.mac)

    def _answers(self, now: float) -> list[bytes]:
        if now < self._hold:
            return []
        waiting, self._waiting = self._waiting, []
        return [frames.answer(one, self.mac) for one in waiting if self._may_answer(one, now)]

    def _may_answer(self, question: Question, now: float) -> bool:
        if question.address in self._given_way or question.address not in self._own:
            return False
        who = (question.address, question.mac)
        if now - self._recent.get(who, float("-inf")) < _AGAIN:
            return False
        if len(self._recent) >= _MOST_RECENT:
            self._recent = {key: at for key, at in self._recent.items() if now - at < _AGAIN}
        if len(self._recent) >= _MOST_RECENT:
            return False  # a flood of askers with ever new addresses
        self._recent[who] = now
        return True
