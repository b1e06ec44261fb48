"""What errors say about what to do."""

from __future__ import annotations

import pytest

from controlplane.cluster.advice import advised
from nodelib.command import CommandError
from nodelib.errors import Temporary


@pytest.mark.parametrize(
    ("error", "action"),
    [
        (CommandError(["ctr", "images", "import"], 1, b"ctr: no space left"), "Look at its log."),
        (Temporary("no socket", action="Its own advice."), "Its own advice."),
    ],
)
def test_an_error_without_advice_gets_that_of_its_step(error: Temporary, action: str) -> None:
    with pytest.raises(type(error)) as raised, advised("Look at its log."):
        raise error
    assert raised.value.action == action
