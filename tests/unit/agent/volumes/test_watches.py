"""When an object is read, listed and watched, and when its users are notified."""

from __future__ import annotations

import pytest

from agent.volumes.plan.watches import Step, must_notify, next_step, pause_before_look, waits_before_watch


@pytest.mark.parametrize(
    ("known", "listed", "current", "step"),
    [
        pytest.param(False, "", None, Step.READ, id="nothing is known"),
        pytest.param(True, "", {"data": {}}, Step.LIST, id="read, not listed"),
        pytest.param(True, "7", {"data": {}}, Step.WATCH, id="listed"),
        pytest.param(True, "7", None, Step.WATCH, id="it does not exist, but may be created"),
        pytest.param(True, "7", {"immutable": True}, Step.STOP, id="it cannot change"),
    ],
)
def test_next_step(known: bool, listed: str, current: dict[str, object] | None, step: Step) -> None:
    assert next_step(known=known, listed=listed, current=current) is step


def test_only_an_object_that_exists_waits_for_its_watch() -> None:
    assert waits_before_watch({}) and not waits_before_watch(None)


def test_the_first_answer_notifies_only_after_a_get_that_gave_up() -> None:
    assert not must_notify(changed=True, known_before=False, get_failed=False)
    assert must_notify(changed=True, known_before=False, get_failed=True)
    assert must_notify(changed=True, known_before=True, get_failed=False)
    assert not must_notify(changed=False, known_before=True, get_failed=False)


def test_what_has_no_place_for_a_watch_is_looked_at_unless_it_cannot_change() -> None:
    assert next_step(known=False, placed=False, listed="", current=None) is Step.READ
    assert next_step(known=True, placed=False, listed="", current=None) is Step.LOOK
    assert next_step(known=True, placed=False, listed="", current={"immutable": True}) is Step.STOP


def test_the_more_is_looked_at_the_less_often() -> None:
    assert pause_before_look(1, 0) == 60 and pause_before_look(1000, 1) == 90
    assert pause_before_look(5000, 0) == 300
