"""The transaction that leads from one program to the next. Pure.

The kernel checks each message as it comes: sets before the rules that use them, chains before what leads to them, and
the other way round for what goes. Nothing takes effect before the last one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nodelib.nft import objects, wire
from nodelib.nft.wire import Element, Message
from policy.plan import cluster_layout, layout, marks
from policy.plan.program import Program

TABLE = layout.TABLE


def whole(program: Program) -> list[Message]:
    """The table from scratch, in the place of whatever is there."""
    messages = objects.replaced_table(TABLE)
    messages += [objects.hooked_chain(TABLE, name, "forward", at) for name, at in layout.HOOKS.items()]
    return messages + _changes(Program(program.family, dict.fromkeys(layout.HOOKS, ())), program)


def removal() -> list[Message]:
    """No table of ours."""
    return objects.removed_table(TABLE)


def difference(old: Program, new: Program) -> list[Message]:
    """What changes. Empty if nothing does."""
    return _changes(old, new)


def changed_chains(old: Program, new: Program) -> list[str]:
    """Those whose rules are others, or that are only in one of them."""
    return [
        *_others(old.chains, new.chains),
        *[name for name in old.chains if name not in new.chains],
    ]


def renewed(program: Program, generation: int) -> list[Message]:
    """What gives the program, which has just been written, another generation."""
    if marks.KNOWN not in program.chains:
        return []
    program.chains.update(marks.chains(generation))
    messages = [wire.flushed_chain(TABLE, name) for name in marks.CHAINS]
    for name in marks.CHAINS:
        messages += [wire.new_rule(one.body(TABLE, name, program.family)) for one in program.chains[name]]
    return messages


def _changes(old: Program, new: Program) -> list[Message]:
    fresh = _others(old.sets, new.sets)
    gone = _others(new.sets, old.sets)
    changed = _others(old.chains, new.chains)
    dropped = [name for name in old.chains if name not in new.chains]
    messages = [
        objects.new_set(TABLE, name, new.sets[name], new.family, number) for number, name in enumerate(fresh, 1)
    ]
    plain = [name for name in new.sets if not new.sets[name].verdicts]
    maps = [name for name in new.sets if new.sets[name].verdicts]
    messages += _elements(plain, old, new)
    # All chains before any rule: rules lead from one to another.
    messages += [_new_chain(name) for name in changed if name not in old.chains]
    messages += [wire.flushed_chain(TABLE, name) for name in changed if old.chains.get(name)]
    for name in changed:
        messages += [wire.new_rule(one.body(TABLE, name, new.family)) for one in new.chains[name]]
    messages += _elements(maps, old, new)
    leads = [Element(name, raw) for name in gone if old.sets[name].verdicts for raw in old.elements[name]]
    messages += wire.removed(TABLE, leads)
    messages += [wire.flushed_chain(TABLE, name) for name in dropped if old.chains[name]]
    messages += [objects.removed_chain(TABLE, name) for name in dropped]
    messages += [objects.removed_set(TABLE, name) for name in gone]
    return messages


def _others(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    """What is new, or not as it was. Almost all is the same object as before, and need not be compared."""
    return [name for name, value in new.items() if (was := old.get(name)) is not value and was != value]


def _new_chain(name: str) -> Message:
    if name in cluster_layout.HOOKS:
        return objects.hooked_chain(TABLE, name, *cluster_layout.HOOKS[name])
    return wire.new_chain(TABLE, name)


def _elements(names: Iterable[str], old: Program, new: Program) -> list[Message]:
    delete: list[Element] = []
    add: list[Element] = []
    for name in names:
        before, after = old.elements.get(name, frozenset()), new.elements[name]
        if before is not after:
            delete += [Element(name, raw) for raw in before - after]
            add += [Element(name, raw) for raw in after - before]
    return wire.removed(TABLE, delete) + wire.added(TABLE, add)
