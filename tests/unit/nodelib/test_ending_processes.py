"""Ending processes: how long one that was killed is waited for, and what is said of one that does not end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nodelib.cgroups import Doing, Undying, doing, end_all


def ignored(pids: set[int]) -> None:
    pass


class Dying:
    """Processes that end only after they were looked at a few times: the kernel gave them no processor before."""

    def __init__(self, state: Doing, looks: int) -> None:
        self.state, self.looks = state, looks

    def alive(self) -> set[int]:
        return {7} if self.looks else set()

    def look(self, pid: int) -> Doing:
        self.looks -= 1
        return self.state


@pytest.mark.parametrize("state", [Doing("R", False), Doing("D", True), Doing("R", True)])
def test_who_only_needs_a_processor_is_waited_for(state: Doing) -> None:
    slow = Dying(state, looks=3)
    assert end_all(slow.alive, ignored, timeout=0, patience=60, look=slow.look) == 1


def test_who_is_blocked_in_the_kernel_is_not() -> None:
    with pytest.raises(Undying, match=r"processes do not end: 7 \(state D\)") as caught:
        end_all(lambda: {7}, ignored, timeout=0, patience=60, look=lambda pid: Doing("D", False))
    assert caught.value.is_blocked and caught.value.pids == [7]


def test_patience_ends_and_the_error_says_what_they_do() -> None:
    states = {7: Doing("D", False), 8: Doing("R", True), 9: Doing("S", False)}
    with pytest.raises(Undying, match=r"7 \(state D\), 8 \(state R, ending\), 9 \(state S\)") as caught:
        end_all(lambda: set(states), ignored, timeout=0, patience=0.01, look=states.__getitem__)
    assert not caught.value.is_blocked


def test_of_many_only_some_are_named() -> None:
    found = Undying({pid: Doing("D", False) for pid in range(100, 120)})
    assert "109" in str(found) and "110" not in str(found) and "and 10 more" in str(found)


@pytest.mark.parametrize(
    ("stat", "wanted"),
    [
        ("12 (a) b) R 1 12 12 0 -1 4194560 0 0", Doing("R", False)),
        ("12 (sh) D 1 12 12 0 -1 4194564 0 0", Doing("D", True)),
        ("", Doing("X", True)),
    ],
)
def test_the_state_is_read(stat: str, wanted: Doing) -> None:
    assert doing(stat) == wanted


def test_the_kernels_own_words_are_read() -> None:
    assert doing(Path(f"/proc/{os.getpid()}/stat").read_text()) == Doing("R", False)
