"""What a supervisor starts and stops, and how long it pauses."""

from __future__ import annotations

import pytest

from controlplane.supervisor.model import Program
from controlplane.supervisor.plan import LONGEST_PAUSE, STEADY, State, after_exit, decide

A = Program("a", ("/bin/a",), "/log/a")
B = Program("b", ("/bin/b",), "/log/b")


def running(program: Program, pid: int = 7) -> State:
    return State(pid, program.digest)


@pytest.mark.parametrize(
    ("wanted", "states", "stop", "start", "wake"),
    [
        pytest.param([A, B], {}, (), ("a", "b"), None, id="first start, in order"),
        pytest.param([A], {"a": running(A)}, (), (), None, id="all well"),
        pytest.param([], {"a": running(A)}, ("a",), (), None, id="gone from the list"),
        pytest.param([A], {"a": State(7, "old")}, ("a",), (), None, id="changed"),
        pytest.param([A], {"a": State(start_at=105)}, (), (), 105, id="pauses"),
        pytest.param([A, B], {"a": State(start_at=105), "b": State(start_at=103)}, (), (), 103, id="two pause"),
        pytest.param([A], {"a": State(start_at=100)}, (), ("a",), None, id="pause over"),
    ],
)
def test_decide(
    wanted: list[Program], states: dict[str, State], stop: tuple[str, ...], start: tuple[str, ...], wake: float | None
) -> None:
    decision = decide({program.name: program for program in wanted}, states, 100.0)
    assert (decision.stop, decision.start, decision.wake_at) == (stop, start, wake)


def test_pauses_double_up_to_a_limit() -> None:
    state, pauses = State(started_at=0.0), []
    for _ in range(8):
        state = after_exit(state, 0.1)
        pauses.append(state.pause)
    assert pauses[:4] == [0.2, 0.4, 0.8, 1.6]
    assert pauses[-1] == LONGEST_PAUSE


def test_a_killed_program_has_no_pause_to_sit_out() -> None:
    assert after_exit(State(7, "d", started_at=50.0, pause=8.0), 51.0, killed=True).pause == 0.2


def test_a_steady_run_forgets_the_pause() -> None:
    assert after_exit(State(7, "d", started_at=50.0, pause=8.0), 50.0 + STEADY).pause == 0.2


def test_a_digest_tells_what_must_be_restarted() -> None:
    assert A.digest == Program("a", ("/bin/a",), "/other/log", stop_timeout=9).digest
    assert A.digest != Program("a", ("/bin/a", "-v"), "/log/a").digest
    assert A.digest != Program("a", ("/bin/a",), "/log/a", {"X": "1"}).digest
