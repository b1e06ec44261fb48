"""What fails while a pod's materials are made, as the errors that its owner can act upon."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from agent.common.model.pods import Pod
from nodelib.errors import Invalid, Temporary
from nodelib.threads import alone

_T = TypeVar("_T")


@contextmanager
def well_formed(pod: Pod) -> Iterator[None]:
    """A manifest from a file has passed no validation: a field of a wrong type is the manifest's fault, said so."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Invalid(
            f"the pod's specification is malformed: {type(error).__name__}: {error}",
            obj=f"pod {pod.full_name}",
            action="Compare it with `kubectl explain pod.spec`.",
        ) from error


async def blocking(pod: Pod, step: str, work: Callable[[], _T]) -> _T:
    """Blocking work on the node's disk, in a thread. Raises Temporary: the disk refused."""
    try:
        return await alone(work)
    except OSError as error:
        raise Temporary(
            str(error), obj=f"pod {pod.full_name}", step=step, action="See the node's disk; it is tried again."
        ) from error
