"""A failed step: when it is tried again, what it blocks, and whether the node rejects the pod for it."""

from __future__ import annotations

from dataclasses import replace

from agent.common.model.refusal import ATTACH_LIMIT, UNEXPECTED
from agent.common.model.states import Failure
from agent.common.plan import backoff
from agent.pods.model.facts import Termination
from agent.pods.model.steps import EnsureImage, Prepare, Resize, RunSandbox, Start, Step
from agent.pods.plan.termination import rejection

_RESIZE_PAUSE = 10.0  # seconds; upstream's backOffPeriod
_ATTACH_PATIENCE = 123.0  # seconds; upstream's podAttachAndMountTimeout


def blocked_container(step: Step) -> str:
    """The name of the container that the step is for; "": the whole pod waits for it."""
    return str(step.container["name"]) if isinstance(step, Start | EnsureImage) else ""


def failure(before: Failure | None, reason: str, message: str, action: str, now: float, jitter: float) -> Failure:
    """`before`: the last failure of the same step. `jitter` (about 1.0) spreads retries of pods that fail together."""
    again = before if before is not None and before.reason == reason else None
    times = again.times + 1 if again else 1
    retry_at = now + backoff.step_delay(times) * jitter
    return Failure(reason, message, retry_at, times, again.since if again else now, action)


def without_pause(failure: Failure) -> Failure:
    """Worth another try now, as if it had not been tried; it has lasted as long as before."""
    return replace(failure, retry_at=float("-inf"), times=0)


def resize_failure(reason: str, message: str, now: float, jitter: float) -> Failure:
    """A failed resize is tried again without back-off."""
    return Failure(reason, message, now + _RESIZE_PAUSE * jitter)


def rejection_of(reason: str, message: str, now: float, before: Failure | None) -> Termination | None:
    """A pod that cannot get its devices is rejected, as admission would do it, so that its owner makes another.

    So is one whose volumes would be too many for the node, once they have been so for a while: others may go meanwhile.
    `before`: the failure that blocked the pod until now.
    """
    long = before is not None and before.reason == reason and now - before.since >= _ATTACH_PATIENCE
    return rejection(reason, message, now) if reason == UNEXPECTED or (reason == ATTACH_LIMIT and long) else None


def unblocks(step: Step, failing: type[Step] | None) -> bool:
    """Whether the success of `step` clears a block that the failure of a `failing` step set.

    Prepare and RunSandbox run at the same time: the success of one does not clear a failure of the other.
    """
    return not isinstance(step, Start | EnsureImage | Resize) and {type(step), failing} != {Prepare, RunSandbox}
