"""Feature gates as upstream's programs take them (k8s.io/component-base/featuregate). Pure.

A gate that upstream does not know is refused, and so is a change of one that is locked, or one that is switched on
while another that it needs is off.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from nodelib.upstream.answers import Answer, Gate, Kind

_ALL = {"AllAlpha": "ALPHA", "AllBeta": "BETA"}  # gates that stand for all of a stage


def enabled(given: Mapping[str, bool], known: Mapping[str, Gate]) -> dict[str, bool]:
    """Every known gate, and whether it is on: a name wins over AllAlpha and AllBeta, those over the defaults."""
    stages = {stage: given[name] for name, stage in _ALL.items() if name in given}
    return {name: given.get(name, stages.get(gate.stage, gate.default)) for name, gate in known.items()}


def problems(given: Mapping[str, bool], known: Mapping[str, Gate]) -> Iterator[tuple[str, str]]:
    """(gate, problem) of everything for which upstream would not start."""
    wrong = False
    for name, value in given.items():
        gate = known.get(name)
        if gate is None:
            wrong = True
            yield name, "unrecognized feature gate"
        elif gate.locked and value != gate.default:
            wrong = True
            yield name, f"cannot be set to {_text(value)}, feature is locked to {_text(gate.default)}"
    if wrong:
        return
    on = enabled(given, known)
    for name, gate in known.items():
        missing = [other for other in gate.requires if on[name] and not on.get(other, False)]
        if missing:
            yield name, f"is enabled, but depends on features that are disabled: {', '.join(missing)}"


def notices(
    given: Mapping[str, bool], known: Mapping[str, Gate], answers: Mapping[str, Answer], switched: Collection[str]
) -> Iterator[str]:
    """A line for each given gate that changes nothing although it asks for something. `switched`: the obeyed ones."""
    for name, value in sorted(given.items()):
        if name in switched or name in _ALL:
            continue
        answer = answers.get(name)
        if answer is None:
            yield f"featureGates.{name} has no effect here: no program of a node reads it"
        elif answer.kind is Kind.OBEYED and not value:
            yield f"featureGates.{name} cannot be switched off here{_because(answer)}"
        elif answer.kind is not Kind.OBEYED and (value or known[name].default):
            yield f"featureGates.{name} has no effect here{_because(answer)}"


def _because(answer: Answer) -> str:
    return f": {answer.instead}" if answer.instead else ""


def _text(value: bool) -> str:
    return str(value).lower()
