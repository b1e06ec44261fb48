"""What a supervisor does next with its programs: pure decisions over a table of states."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.supervisor.model import Program

FIRST_PAUSE = 0.2  # seconds before a program that ended is started again; doubles
LONGEST_PAUSE = 10.0
STEADY = 10.0  # a program that ran this long has its pause forgotten


@dataclass(frozen=True)
class State:
    """A program as it is: running (pid > 0) or waiting until `start_at` (monotonic seconds)."""

    pid: int = 0
    digest: str = ""
    started_at: float = 0.0
    start_at: float = 0.0
    pause: float = 0.0
    starts: int = 0


@dataclass(frozen=True)
class Decision:
    """Names to stop and to start now, and the time to look again (None: nothing waits)."""

    stop: tuple[str, ...]
    start: tuple[str, ...]
    wake_at: float | None


def decide(wanted: dict[str, Program], states: dict[str, State], now: float) -> Decision:
    """Stop what is not wanted any more or has changed, start what is due."""
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
    """The state of a program that has just ended: its pause doubles unless it ran steadily.

    `killed`: by SIGKILL. That is somebody else's doing, and no sign that it cannot run.
    """
    steady = now - state.started_at >= STEADY
    pause = FIRST_PAUSE if steady or killed or not state.pause else min(state.pause * 2, LONGEST_PAUSE)
    return State(start_at=now + pause, pause=pause, starts=state.starts)
