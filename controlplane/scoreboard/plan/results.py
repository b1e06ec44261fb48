"""What is known of each part, from all runs that there are, and what is left to be run.

A result is that of a spec. So it stays when rules or groups change and the spec is in another part, and it does not
matter which machine's run it is from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from controlplane.scoreboard.model import Part, Run, Step

Runs = Mapping[tuple[str, str], Run]  # by part and maker

_AGAIN = "second try: "
_COMMITS = 3  # that are named where the results of a part are from several


def gather(runs: Iterable[Run], parts: Iterable[Part], kubernetes: str) -> dict[tuple[str, str], Run]:
    """A run for each part and maker: the newest outcome of each spec, of this version of upstream's suites."""
    ordered = sorted((run for run in runs if run.kubernetes == kubernetes), key=lambda run: run.date)
    by_spec: dict[tuple[str, str, str], Run] = {}
    empty: dict[tuple[str, str], Run] = {}
    for run in ordered:
        if not run.outcomes:
            empty[run.part, run.maker] = run
        for name in run.missed:
            by_spec.setdefault((run.program, run.maker, name), run)
        for name in run.outcomes:
            by_spec[run.program, run.maker, name] = run
    found = {}
    for part in parts:
        for maker in part.group.makers:
            program = part.specs[0].program
            sources = {
                s.name: by_spec[program, maker, s.name] for s in part.specs if (program, maker, s.name) in by_spec
            }
            if sources:
                found[part.name, maker] = _merged(part, sources)
            elif (part.name, maker) in empty:
                found[part.name, maker] = empty[part.name, maker]
    return found


def _merged(part: Part, sources: Mapping[str, Run]) -> Run:
    """One run of the part, by the run that each of its specs is from."""
    used = {id(run): run for run in sources.values()}
    runs = sorted(used.values(), key=lambda run: run.date)
    newest = runs[-1]
    outcomes = {name: run.outcomes[name] for name, run in sources.items() if name in run.outcomes}
    if len(runs) == 1 and newest.part == part.name and outcomes.keys() == newest.outcomes.keys():
        return newest
    words = dict.fromkeys(word for run in reversed(runs) for word in run.commit.split())
    missed = tuple(name for name in sources if name not in outcomes)
    shares = (run.seconds * sum(one is run for one in sources.values()) / _asked(run) for run in runs)
    return replace(
        newest,
        part=part.name,
        commit=" ".join([*words][:_COMMITS]),
        seconds=round(sum(shares), 1),
        outcomes=outcomes,
        missed=missed,
        tried=min(run.tried for run in runs),
        problem=newest.problem if missed else "",
    )


def _asked(run: Run) -> int:
    return len(run.outcomes) + len(run.missed)


def left(parts: Sequence[Part], runs: Runs, *, again: bool = False) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """What is still to be run: specs that were never asked for; behind them second tries, and what was not reached."""
    never: list[Step] = []
    second: list[Step] = []
    unreached: list[Step] = []
    for part in parts:
        for maker in part.group.makers:
            run = runs.get((part.name, maker))
            if again or run is None:
                never.append(Step(part, maker))
            elif not run.outcomes:
                unreached.append(Step(part, maker))
            elif missing := [s for s in part.specs if s.name not in run.outcomes and s.name not in run.missed]:
                never.append(Step(replace(part, specs=tuple(missing)), maker))
            else:
                second += second_tries(part, run)
                if missed := tuple(spec for spec in part.specs if spec.name in run.missed):
                    unreached.append(Step(replace(part, specs=missed), maker))
    return tuple(never), (*second, *unreached)


def second_tries(part: Part, run: Run) -> tuple[Step, ...]:
    """The step that runs what has failed once more, or nothing."""
    failed = tuple(spec for spec in part.specs if _fails_once(run, spec.name))
    return (Step(replace(part, specs=failed), run.maker, second=True),) if failed and run.tried < 2 else ()


def _fails_once(run: Run, name: str) -> bool:
    outcome = run.outcomes.get(name)
    return outcome is not None and outcome.verdict == "failed" and outcome.second is None


def with_second(first: Run, second: Run) -> Run:
    """The run with what came of its failed specs when they were run again, alone."""
    outcomes = {
        name: replace(outcome, second=second.outcomes[name])
        if outcome.verdict == "failed" and name in second.outcomes
        else outcome
        for name, outcome in first.outcomes.items()
    }
    problem = "" if first.problem.startswith(_AGAIN) else first.problem
    if not second.outcomes:
        return replace(first, problem=problem or f"{_AGAIN}{second.problem}")
    return replace(first, outcomes=outcomes, tried=2, problem=problem)
