"""What a supervisor does next with its programs, decided from a table of states. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.supervisor.model import Program

FIRST_PAUSE = 0.2  # seconds before a program that exited is restarted; doubles each time
LONGEST_PAUSE = 10.0
STEADY = 10.0  # seconds; a program that ran this long starts again with the first pause


@dataclass(frozen=True)
class State:
    """The state of a program: running (pid > 0), or waiting until `start_at` (monotonic seconds)."""

    pid: int = 0
    digest: str = ""
    started_at: float = 0.0
    start_at: float = 0.0
    pause: float = 0.0
    starts: int = 0


@dataclass(frozen=True)
class Decision:
    """Names to stop and to start now, and when to decide again (None: nothing is waiting)."""

    stop: tuple[str, ...]
    start: tuple[str, ...]
    wake_at: float | None


def decide(wanted: dict[str, Program], states: dict[str, State], now: float) -> Decision:
    """Stop what is no longer wanted or has changed, start what is due."""
    stop = tuple(
        name
        for name, state in states.items()
        if state.pid and (name not in wanted or wanted[name].digest != state.digest)
    )
    start, wake = [], None
    for name in wanted:
        state = states.get(name, State())
        if state.pid:
            continue
        if state.start_at <= now:
            start.append(name)
        else:
            wake = min(wake, state.start_at) if wake is not None else state.start_at
    return Decision(stop, tuple(start), wake)


def after_exit(state: State, now: float, *, killed: bool = False) -> State:
    """The state of a program that has just exited: its pause doubles unless it ran for a while.

    `killed`: by SIGKILL. Somebody else did that, so it does not mean that the program cannot run.
    """
    steady = now - state.started_at >= STEADY
    pause = FIRST_PAUSE if steady or killed or not state.pause else min(state.pause * 2, LONGEST_PAUSE)
    return State(start_at=now + pause, pause=pause, starts=state.starts)
