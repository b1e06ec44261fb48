"""What steps are called, in timelines and logs."""

from __future__ import annotations

from agent.pods.model.steps import (
    Confirm,
    EnsureImage,
    Forget,
    Kill,
    Prepare,
    PreStop,
    Release,
    RemoveContainer,
    RemoveSandbox,
    Resize,
    RunSandbox,
    Start,
    Step,
    StopSandbox,
)

_PLAIN: dict[type[object], str] = {
    Prepare: "prepare",
    RunSandbox: "sandbox",
    Resize: "resize",
    StopSandbox: "stop sandbox",
    RemoveContainer: "remove container",
    RemoveSandbox: "remove sandbox",
    Release: "release",
    Confirm: "confirm",
    Forget: "forget",
}


def name_of(step: Step) -> str:
    """Short, and the same for each try of the same step."""
    if isinstance(step, EnsureImage) and step.volume is not None:
        return f"image of volume {step.volume['name']}"
    if isinstance(step, EnsureImage):
        return f"image {step.container['name']}"
    if isinstance(step, Start):
        return f"start {step.container['name']}"
    if isinstance(step, Kill):
        return f"stop {step.name}"
    if isinstance(step, PreStop):
        return f"preStop {step.name}"
    return _PLAIN[type(step)]


def why_of(step: Step) -> str:
    """What the step is done for, where that is not plain."""
    return step.message if isinstance(step, Kill) else ""
