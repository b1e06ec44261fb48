"""Feature gates as upstream's programs take them."""

from __future__ import annotations

import pytest

from nodelib.upstream.answers import Answer, Gate, Kind
from nodelib.upstream.gates import enabled, notices, problems

KNOWN = {
    gate.name: gate
    for gate in (
        Gate("AllAlpha", "ALPHA", False, False, ()),
        Gate("AllBeta", "BETA", False, False, ()),
        Gate("New", "ALPHA", False, False, ()),
        Gate("Newer", "ALPHA", False, False, ("Shown",)),
        Gate("Shown", "BETA", True, False, ()),
        Gate("Done", "GA", True, True, ()),
        Gate("Gone", "DEPRECATED", False, False, ()),
    )
}


@pytest.mark.parametrize(
    ("given", "on"),
    [
        pytest.param({}, {"Shown", "Done"}, id="defaults"),
        pytest.param({"New": True}, {"New", "Shown", "Done"}, id="by name"),
        pytest.param({"AllAlpha": True}, {"AllAlpha", "New", "Newer", "Shown", "Done"}, id="a stage"),
        pytest.param({"AllAlpha": True, "New": False}, {"AllAlpha", "Newer", "Shown", "Done"}, id="a name wins"),
        pytest.param({"AllBeta": False}, {"Done"}, id="a stage off"),
        pytest.param({"Gone": True}, {"Gone", "Shown", "Done"}, id="deprecated"),
    ],
)
def test_a_gate_is_what_is_given_then_its_stage_then_its_default(given: dict[str, bool], on: set[str]) -> None:
    assert {name for name, value in enabled(given, KNOWN).items() if value} == on


@pytest.mark.parametrize(
    ("given", "found"),
    [
        pytest.param({}, [], id="nothing"),
        pytest.param({"Done": True}, [], id="locked, unchanged"),
        pytest.param({"Done": False}, [("Done", "cannot be set to false, feature is locked to true")], id="locked"),
        pytest.param({"None": True}, [("None", "unrecognized feature gate")], id="unknown"),
        pytest.param({"Newer": True}, [], id="what it needs is on"),
        pytest.param(
            {"Newer": True, "Shown": False},
            [("Newer", "is enabled, but depends on features that are disabled: Shown")],
            id="what it needs is off",
        ),
        pytest.param(
            {"AllAlpha": True, "AllBeta": False},
            [("Newer", "is enabled, but depends on features that are disabled: Shown")],
            id="by stages",
        ),
    ],
)
def test_problems(given: dict[str, bool], found: list[tuple[str, str]]) -> None:
    assert list(problems(given, KNOWN)) == found


def test_of_a_gate_that_is_switched_nothing_is_said() -> None:
    answers = {"Shown": Answer(Kind.OBEYED, "here"), "New": Answer(Kind.ABSENT, instead="it is not there")}
    given = {"Shown": False, "New": True}
    assert list(notices(given, KNOWN, answers, {"Shown"})) == ["featureGates.New has no effect here: it is not there"]
    assert list(notices(given, KNOWN, answers, {"New"})) == ["featureGates.Shown cannot be switched off here"]
