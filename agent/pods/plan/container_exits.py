"""Which containers have ended since the view before, and how, in words."""

from __future__ import annotations

import signal

from agent.common.model.pods import ContainerState, ObservedPod, RunState

_SIGNALLED = 128


def ended(before: ObservedPod, after: ObservedPod) -> list[ContainerState]:
    """Attempts that ran in the view `before` and have ended since, in the order of their ends."""
    alive = {one.id for one in before.containers if one.state is not RunState.EXITED}
    gone = [one for one in after.containers if one.state is RunState.EXITED and one.id in alive]
    return sorted(gone, key=lambda one: one.finished_at)


def lifetime(one: ContainerState) -> float:
    """How many seconds it ran; 0 if it never started."""
    return max(0.0, (one.finished_at - one.started_at) / 1e9) if one.started_at else 0.0


def how(one: ContainerState) -> str:
    """How it ended: "ok" for exit code 0, else code, signal and the runtime's reason."""
    if one.exit_code == 0:
        return "ok"
    reason = f" ({one.reason})" if one.reason and one.reason != "Error" else ""
    return f"exit code {one.exit_code}{signalled(one.exit_code)}{reason}"


def signalled(code: int) -> str:
    """`" = SIGKILL"` for 137; "" for a code that stands for no signal."""
    try:
        return f" = {signal.Signals(code - _SIGNALLED).name}" if code > _SIGNALLED else ""
    except ValueError:
        return ""
