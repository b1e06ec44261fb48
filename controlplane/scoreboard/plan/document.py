"""The scoreboard for programs: docs/scoreboard.json, from which the page is made, too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from controlplane.scoreboard.model import MAKERS, Machine, Partition, Program, Run, Spec
from controlplane.scoreboard.plan import clusters, counts
from controlplane.scoreboard.plan.partition import partition
from nodelib.errors import Invalid


@dataclass(frozen=True, slots=True)
class Board:
    """All that is known: where every spec is, what ran, why the makers differ."""

    kubernetes: str
    machine: Machine
    partition: Partition
    runs: counts.Runs
    explanations: Mapping[str, str]


def write(board: Board) -> str:
    """The document, with a line for each spec."""
    found = counts.both(board.partition, board.runs)
    document = {
        "kubernetes": board.kubernetes,
        "machine": {"text": board.machine.text, "abilities": sorted(board.machine.abilities)},
        "rows": [_row(sig, feature, row) for (sig, feature), row in _table(board).items()],
        "differences": [_difference(one, board.explanations) for one in found if one.differs],
        "cannotRunHere": [{"reason": rule.reason, "specs": _names(specs)} for rule, specs in board.partition.kept_out],
        "parts": [
            {
                "name": part.name,
                "what": part.group.what,
                "onlyOurs": part.group.only_ours,
                "runs": {
                    maker: asdict(run)
                    for maker in part.group.makers
                    if (run := board.runs.get((part.name, maker))) is not None
                },
                "specs": _names(part.specs),
            }
            for part in board.partition.parts
        ],
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _table(board: Board) -> dict[tuple[str, str], counts.Row]:
    return counts.table(board.partition, board.runs)


def _names(specs: tuple[Spec, ...]) -> dict[str, list[str]]:
    return {program: names for program in Program if (names := [s.name for s in specs if s.program is program])}


def _row(sig: str, feature: str, row: counts.Row) -> dict[str, Any]:
    return {
        "sig": sig,
        "feature": feature,
        "specs": row.specs,
        "cannotRunHere": row.kept_out,
        "notRunYet": row.not_run,
        **{maker: {kind: getattr(row, kind)[maker] for kind in ("passed", "failed", "skipped")} for maker in MAKERS},
        "onlyOursFails": row.only_ours,
        "onlyUpstreamFails": row.only_upstream,
    }


def _difference(one: counts.Both, explanations: Mapping[str, str]) -> dict[str, Any]:
    assert one.ours is not None and one.upstream is not None
    return {
        "spec": one.spec.name,
        "suite": one.spec.program,
        "nodewright": one.ours.verdict,
        "upstream": one.upstream.verdict,
        "reason": next((o.reason for o in (one.ours, one.upstream) if o.reason), ""),
        "explanation": explanations.get(one.spec.name),
    }


def read(text: str, explanations: Mapping[str, str]) -> Board:
    """The board of a document, with today's rules and groups and those results that count with them.

    Raises Invalid for what is none.
    """
    try:
        found = json.loads(text)
        machine = Machine(found["machine"]["text"], frozenset(found["machine"]["abilities"]))
        specs = [
            Spec(Program(program), name)
            for place in (*found["parts"], *found["cannotRunHere"])
            for program, names in place["specs"].items()
            for name in names
        ]
        runs = {
            (part["name"], maker): Run.from_json(run) for part in found["parts"] for maker, run in part["runs"].items()
        }
        kubernetes = str(found["kubernetes"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Invalid(f"not a scoreboard: {error!r}", obj="scoreboard.json", step="read it") from error
    divided = partition(specs, machine.abilities)
    return Board(kubernetes, machine, divided, clusters.current(runs, divided.parts, kubernetes), explanations)
