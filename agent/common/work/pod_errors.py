"""Turn low-level exceptions from work on a pod into errors that name the pod, the step and a remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from agent.common.model.pods import Pod
from nodelib.errors import Invalid, Temporary
from nodelib.threads import alone

_T = TypeVar("_T")


@contextmanager
def refuse_malformed(pod: Pod) -> Iterator[None]:
    """Raise Invalid when the code inside trips over a field of the wrong type.

    Manifests of static pods are not validated by an API server, so any field may hold anything.
    """
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Invalid(
            f"the pod's specification is malformed: {type(error).__name__}: {error}",
            obj=f"pod {pod.full_name}",
            action="Compare it with `kubectl explain pod.spec`.",
        ) from error


async def run_blocking(pod: Pod, step: str, work: Callable[[], _T]) -> _T:
    """Run blocking disk work in a thread. Raises Temporary in place of OSError."""
    with blocking(pod, step):
        return await alone(work)


@contextmanager
def blocking(pod: Pod, step: str) -> Iterator[None]:
    """Raise Temporary in place of OSError."""
    try:
        yield
    except OSError as error:
        raise Temporary(
            str(error), obj=f"pod {pod.full_name}", step=step, action="Check the node's disk; the agent tries again."
        ) from error
