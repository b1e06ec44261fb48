"""The waterfall of `why`, drawn in so many characters; and what it makes of names and times of others."""

from __future__ import annotations

import pytest

from cli.why import waterfall
from nodelib.json_values import Json
from view.model.pods import Step
from view.plan.life import life

NOW = 1_767_225_700.0
MADE: Json = {"metadata": {"name": "web", "creationTimestamp": "2026-01-01T00:00:00Z"}}
AT = 1_767_225_600.0
WIDE = 38 + 23 + 20


def drawn(*steps: Step, pod: Json = MADE, width: int = WIDE) -> list[str]:
    return list(waterfall.lines(life(pod, steps, ()), width, NOW))


def bars(lines: list[str]) -> dict[str, str]:
    """What is drawn behind the two times, by the step's name."""
    return {line[:38].strip(): line[61:] for line in lines if " s " in line[38:] or line.endswith("█")}


def test_bars_begin_and_end_where_their_times_are() -> None:
    lines = drawn(
        Step(AT, "sandbox", 1.0, "ok", False),
        Step(AT + 0.25, "network", 0.5, "ok", True),
        Step(AT + 1.0, "start app", 1.0, "ok", False),
    )
    found = bars(lines)
    assert found["sandbox"] == "█" * 10
    assert found["network"] == "  " + "█" * 5
    assert found["start app"] == " " * 10 + "█" * 10
    assert "2.000 s in all" in lines[1]
    assert any(line.startswith("  network") for line in lines), "a part is set in"


@pytest.mark.parametrize(
    ("step", "sign", "more"),
    [
        (Step(AT, "sandbox", 1.0, "no network", False), "▓", "no network"),
        (Step(AT, "pull", None, "ok", False), "▒", "100.000 s+"),
    ],
    ids=["failed", "under way"],
)
def test_what_failed_and_what_goes_on_look_different(step: Step, sign: str, more: str) -> None:
    text = "\n".join(drawn(step))
    assert sign in text and more in text and "█" not in text


def test_names_of_others_stay_in_their_line_and_bring_no_escapes() -> None:
    text = drawn(Step(AT, "start \x1b[2Ja\nb" + "x" * 500, 1.0, "ok", False))
    assert len(text) == len(drawn(Step(AT, "start app", 1.0, "ok", False)))
    assert not any("\x1b" in line for line in text)
    assert all(len(line) <= WIDE for line in text[2:3])


@pytest.mark.parametrize("width", [1, 40, 500])
def test_any_terminal_is_wide_enough(width: int) -> None:
    lines = drawn(Step(AT, "a", 0.0, "ok", False), Step(AT + 5, "b", 900.0, "ok", False), width=width)
    assert len(lines) > 2 and max(len(line) for line in lines[2:4]) <= max(width, 38 + 23 + 12)


def test_without_a_record_the_api_is_told_to_be_the_source() -> None:
    lines = drawn(pod={**MADE, "status": {}})
    assert "API" in lines[0]
    assert any(line.startswith("Not yet: Ready") for line in lines)
