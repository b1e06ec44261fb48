from __future__ import annotations

import pytest

from agent.volumes.plan.watches import Move, is_news, next_move, settles


@pytest.mark.parametrize(
    ("known", "listed", "current", "move"),
    [
        pytest.param(False, "", None, Move.READ, id="nothing is known"),
        pytest.param(True, "", {"data": {}}, Move.LIST, id="read, not listed"),
        pytest.param(True, "7", {"data": {}}, Move.WATCH, id="listed"),
        pytest.param(True, "7", None, Move.WATCH, id="it does not exist: it may come"),
        pytest.param(True, "7", {"immutable": True}, Move.REST, id="it cannot change"),
    ],
)
def test_what_is_done_next(known: bool, listed: str, current: dict[str, object] | None, move: Move) -> None:
    assert next_move(known=known, listed=listed, current=current) is move


def test_only_an_object_that_is_there_may_wait_for_its_watch() -> None:
    assert settles({}) and not settles(None)


def test_the_first_answer_is_news_to_those_only_who_went_away_without() -> None:
    assert not is_news(changed=True, known_before=False, disappointed=False)
    assert is_news(changed=True, known_before=False, disappointed=True)
    assert is_news(changed=True, known_before=True, disappointed=False)
    assert not is_news(changed=False, known_before=True, disappointed=False)
