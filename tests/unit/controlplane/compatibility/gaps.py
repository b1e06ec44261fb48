"""Upstream's facts that have no answer, and answers about what upstream does not have."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from controlplane.compatibility.model import Program, Row
from nodelib.json_values import Json


def unanswered(programs: tuple[Program, ...], gates: tuple[Row, ...]) -> Iterator[str]:
    """What upstream has and no answer is about."""
    for one in programs:
        known = {row.name for row in one.fields}
        yield from (f"{one.name} field {row.name}" for row in one.fields if row.answer is None)
        for row in one.flags:
            if row.answer is None and row.sets not in known:
                yield f"{one.name} flag --{row.name}"
    yield from (f"feature gate {row.name}" for row in gates if row.answer is None)


def answered_for_nothing(
    programs: Mapping[str, tuple[Collection[str], Collection[str]]], gates: Collection[str], facts: Mapping[str, Json]
) -> Iterator[str]:
    """Answers about what upstream does not have. `programs`: by name, the answered fields and flags."""
    for name, (fields, flags) in programs.items():
        there = facts[name]
        yield from (f"{name} field {one}" for one in sorted(set(fields) - {field["path"] for field in there["fields"]}))
        yield from (f"{name} flag --{one}" for one in sorted(set(flags) - {flag["name"] for flag in there["flags"]}))
    known = {gate["name"] for gate in facts["gates"]["gates"]}
    yield from (f"feature gate {one}" for one in sorted(set(gates) - known))
