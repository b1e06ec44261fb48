"""How much a transaction changes, in numbers for a span: between what the kernel has and what was planned. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from policy.plan import marks
from policy.plan.difference import changed_chains
from policy.plan.program import Program

Pair = tuple[Program | None, Program | None]  # what the kernel has (None: nothing that is known), and what was planned


@dataclass(frozen=True, slots=True)
class Amount:
    """Sets with other elements, elements that come and go, chains that are written or go, and the rules in them."""

    sets: int = 0
    added: int = 0
    removed: int = 0
    chains: int = 0
    rules: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            self.sets + other.sets,
            self.added + other.added,
            self.removed + other.removed,
            self.chains + other.chains,
            self.rules + other.rules,
        )


def attributes(changes: int, programs: Iterable[Pair]) -> dict[str, str | int]:
    """`changes`: those of pods, policies and what else was watched that a sync has taken."""
    pairs = [(before, now) for before, now in programs if now is not None]
    total = sum((amount(before, now) for before, now in pairs), Amount())
    return {
        "nodewright.changes": changes,
        "nodewright.sync": "full" if any(before is None for before, _ in pairs) else "partial",
        "nodewright.sets": total.sets,
        "nodewright.elements.added": total.added,
        "nodewright.elements.removed": total.removed,
        "nodewright.chains": total.chains,
        "nodewright.rules": total.rules,
    }


def amount(before: Program | None, now: Program) -> Amount:
    """The generation of marks, which every transaction writes, is not counted."""
    old = before or Program(now.family)
    sets = [name for name in {**old.sets, **now.sets} if old.elements.get(name) is not now.elements.get(name)]
    elements = [(old.elements.get(name, frozenset()), now.elements.get(name, frozenset())) for name in sets]
    different = [(was, is_) for was, is_ in elements if was != is_]
    chains = [name for name in changed_chains(old, now) if name not in marks.CHAINS]
    return Amount(
        len(different),
        sum(len(is_ - was) for was, is_ in different),
        sum(len(was - is_) for was, is_ in different),
        len(chains),
        sum(len(now.chains.get(name, ())) for name in chains),
    )
