"""The names of steps in the timeline and the log."""

from __future__ import annotations

from agent.pods.model.steps import (
    ConfirmDeletion,
    EnsureImage,
    Kill,
    Prepare,
    PreStop,
    Release,
    RemoveContainer,
    RemovePod,
    RemoveSandbox,
    Resize,
    RunSandbox,
    Start,
    Step,
    StopSandbox,
)
from agent.pods.model.timeline import Activity, ActivityKind
from nodelib.json_values import Json

_OF_POD: dict[type[object], ActivityKind] = {
    Prepare: ActivityKind.PREPARE,
    RunSandbox: ActivityKind.SANDBOX,
    Resize: ActivityKind.RESIZE,
    StopSandbox: ActivityKind.STOP_SANDBOX,
    RemoveContainer: ActivityKind.REMOVE_CONTAINER,
    RemoveSandbox: ActivityKind.REMOVE_SANDBOX,
    Release: ActivityKind.RELEASE,
    ConfirmDeletion: ActivityKind.CONFIRM,
    RemovePod: ActivityKind.REMOVE_POD,
}


def activity_of(step: Step) -> Activity:
    """The activity that a step stands for."""
    if isinstance(step, EnsureImage):
        return image_activity(ActivityKind.IMAGE, step.container, step.volume)
    if isinstance(step, Start):
        return Activity(ActivityKind.START, step.container["name"])
    if isinstance(step, Kill):
        return Activity(ActivityKind.STOP, step.name)
    if isinstance(step, PreStop):
        return Activity(ActivityKind.PRE_STOP, step.name)
    return Activity(_OF_POD[type(step)])


def image_activity(kind: ActivityKind, container: Json, volume: Json | None) -> Activity:
    """An activity for the image of a container, or of an image volume."""
    return Activity(kind, volume=volume["name"]) if volume is not None else Activity(kind, container["name"])
