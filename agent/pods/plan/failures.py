"""A step that failed: when it is tried again, whom it holds up, and whether the node rejects the pod for it."""

from __future__ import annotations

from agent.common.model.refusal import UNEXPECTED
from agent.common.model.states import Failure
from agent.common.plan import backoff
from agent.pods.model.facts import Termination
from agent.pods.model.steps import EnsureImage, Prepare, Resize, RunSandbox, Start, Step
from agent.pods.plan.termination import rejection

_RESIZE_PAUSE = 10.0  # seconds; upstream's backOffPeriod


def blocked_container(step: Step) -> str:
    """The container that waits for the step, "" when the whole pod does."""
    return str(step.container["name"]) if isinstance(step, Start | EnsureImage) else ""


def failure(before: Failure | None, reason: str, message: str, action: str, now: float, jitter: float) -> Failure:
    """`before`: the last failure at the same place. `jitter` (about 1.0) keeps pods that fail together apart."""
    again = before if before is not None and before.reason == reason else None
    times = again.times + 1 if again else 1
    retry_at = now + backoff.step_delay(times) * jitter
    return Failure(reason, message, retry_at, times, again.since if again else now, action)


def resize_failure(reason: str, message: str, now: float, jitter: float) -> Failure:
    """A resize is tried again at a steady pace."""
    return Failure(reason, message, now + _RESIZE_PAUSE * jitter)


def rejection_of(reason: str, message: str, now: float) -> Termination | None:
    """A pod that cannot have its devices is rejected as admission would: no other node would hear of it else."""
    return rejection(reason, message, now) if reason == UNEXPECTED else None


def unblocks(step: Step, failing: type[Step] | None) -> bool:
    """Whether the success of `step` ends what the failure of a `failing` step blocked.

    Prepare and RunSandbox run side by side, so that one succeeds says nothing about the other.
    """
    return not isinstance(step, Start | EnsureImage | Resize) and {type(step), failing} != {Prepare, RunSandbox}
