"""The scoreboard for programs: docs/scoreboard.json, from which the page is made, too.

A line for each spec and for each run, and no text twice, so that a part that was run changes its own lines only:

- `specs` is a tree (names.py). A leaf has two sides, ours and upstream's. Each is null, "missed" (the run did not reach
  it), or [verdict, seconds, reason, second try]; the last two may be absent. The second try is of the same form.
- a reason is a key of `reasons`, or "".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from controlplane.scoreboard.model import MAKERS, Machine, Outcome, Partition, Program, Run, Spec
from controlplane.scoreboard.plan import names, results
from controlplane.scoreboard.plan.partition import partition
from nodelib.errors import Invalid

_MISSED = "missed"


@dataclass(frozen=True, slots=True)
class Board:
    """All that is known: where every spec is, what ran, why the makers differ."""

    kubernetes: str
    machine: Machine
    partition: Partition
    runs: results.Runs
    explanations: Mapping[str, str]


def write(board: Board) -> str:
    """The document."""
    reasons: dict[str, str] = {}
    parts = []
    for part in board.partition.parts:
        runs = {maker: run for maker in part.group.makers if (run := board.runs.get((part.name, maker))) is not None}
        parts.append(
            {
                "name": part.name,
                "suite": str(part.specs[0].program),
                "runs": {maker: _flat(_head(run, board)) for maker, run in runs.items()},
                "specs": names.fold({spec.name: _leaf(spec.name, runs, reasons) for spec in part.specs}),
            }
        )
    document = {
        "kubernetes": board.kubernetes,
        "machine": _flat({"text": board.machine.text, "abilities": sorted(board.machine.abilities)}),
        "reasons": dict(sorted(reasons.items())),
        "parts": parts,
        "cannotRunHere": [
            {"reason": rule.reason, "suite": str(program), "specs": names.fold({s.name: None for s in found})}
            for rule, specs in board.partition.kept_out
            for program in Program
            if (found := [spec for spec in specs if spec.program is program])
        ],
    }
    return "\n".join(_lines(document)) + "\n"


def _head(run: Run, board: Board) -> dict[str, Any]:
    """What is not said of the whole document, nor usual."""
    usual = {"kubernetes": board.kubernetes, "machine": board.machine.text, "tried": 1, "problem": ""}
    elsewhere = ("part", "maker", "program", "outcomes", "missed")
    return {name: one for name, one in asdict(run).items() if name not in elsewhere and usual.get(name) != one}


def _leaf(name: str, runs: Mapping[str, Run], reasons: dict[str, str]) -> Any:
    sides = [_side(name, runs.get(maker), reasons) for maker in MAKERS]
    return sides if any(side is not None for side in sides) else None


def _side(name: str, run: Run | None, reasons: dict[str, str]) -> Any:
    if run is None:
        return None
    if name in run.missed:
        return _MISSED
    outcome = run.outcomes.get(name)
    return None if outcome is None else _outcome(outcome, reasons)


def _outcome(outcome: Outcome, reasons: dict[str, str]) -> list[Any]:
    row: list[Any] = [outcome.verdict, outcome.seconds]
    if outcome.reason or outcome.second is not None:
        row.append(_key(outcome.reason, reasons))
    if outcome.second is not None:
        row.append(_outcome(outcome.second, reasons))
    return row


def _key(reason: str, reasons: dict[str, str]) -> str:
    """The reason's key: it is the same in every document, so that one more moves no others."""
    if not reason:
        return ""
    digest = hashlib.sha256(reason.encode()).hexdigest()
    key = next(digest[:size] for size in range(8, 65) if reasons.get(digest[:size], reason) == reason)
    reasons[key] = reason
    return key


class _Flat:
    """What is written on one line."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _flat(value: Any) -> Any:
    return _Flat(value)


def _lines(value: Any) -> Iterator[str]:
    """JSON with a line for each entry of a dict, and for each dict in a list."""
    if isinstance(value, dict):
        yield from _block("{", [(f"{json.dumps(key, ensure_ascii=False)}: ", one) for key, one in value.items()], "}")
    elif isinstance(value, list) and any(isinstance(one, dict) for one in value):
        yield from _block("[", [("", one) for one in value], "]")
    else:
        yield json.dumps(value.value if isinstance(value, _Flat) else value, ensure_ascii=False)


def _block(opening: str, rows: list[tuple[str, Any]], closing: str) -> Iterator[str]:
    if not rows:
        yield opening + closing
        return
    yield opening
    for number, (label, value) in enumerate(rows, 1):
        comma = "," if number < len(rows) else ""
        inner = list(_lines(value))
        inner[0] = label + inner[0]
        inner[-1] += comma
        yield from (f" {line}" for line in inner)
    yield closing


def read(text: str, explanations: Mapping[str, str]) -> Board:
    """The board of a document, with today's rules and groups.

    Raises Invalid for what is none.
    """
    try:
        found = json.loads(text)
        machine = Machine(found["machine"]["text"], frozenset(found["machine"]["abilities"]))
        specs = [
            Spec(Program(place["suite"]), name)
            for place in (*found["parts"], *found["cannotRunHere"])
            for name, _ in names.unfold(place["specs"])
        ]
        kubernetes = str(found["kubernetes"])
        usual = {"kubernetes": kubernetes, "machine": machine.text}
        runs = [run for part in found["parts"] for run in _runs(part, found["reasons"], usual)]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise Invalid(f"not a scoreboard: {error!r}", obj="scoreboard.json", step="read it") from error
    divided = partition(specs, machine.abilities)
    return Board(kubernetes, machine, divided, results.gather(runs, divided.parts, kubernetes), explanations)


def _runs(part: Mapping[str, Any], reasons: Mapping[str, str], usual: Mapping[str, str]) -> Iterable[Run]:
    leaves = dict(names.unfold(part["specs"]))
    for maker, head in part["runs"].items():
        at = MAKERS.index(maker)
        sides = {name: leaf[at] for name, leaf in leaves.items() if leaf is not None and leaf[at] is not None}
        yield Run(
            part=part["name"],
            maker=maker,
            program=Program(part["suite"]),
            outcomes={name: _read(side, reasons) for name, side in sides.items() if side != _MISSED},
            missed=tuple(name for name, side in sides.items() if side == _MISSED),
            **{**usual, **head},
        )


def _read(row: list[Any], reasons: Mapping[str, str]) -> Outcome:
    verdict, seconds, *more = row
    reason = reasons[more[0]] if more and more[0] else ""
    return Outcome(verdict, seconds, reason, _read(more[1], reasons) if len(more) > 1 else None)
