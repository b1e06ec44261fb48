"""Starting what an earlier life of the agent has created: its own call may still be under way with the runtime."""

from __future__ import annotations

from agent.common.model.errors import CriError
from agent.common.model.pods import RunState
from agent.pods.work.deps import PodDeps
from agent.pods.work.memory import PodMemory
from nodelib.backoff import Backoff

# containerd's words for a start beside another one (internal/cri/server/container_start.go).
_UNDER_WAY = "already in starting state"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0  # seconds
_LIMIT = 60.0  # seconds; a start of that earlier life is cut by then


async def start(deps: PodDeps, memory: PodMemory, container_id: str) -> None:
    """Until it is started, whoever did it. Raises CriError: it cannot be, or the other start does not end."""
    pauses, deadline = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE), deps.clock.monotonic() + _LIMIT
    while True:
        try:
            await deps.containers.runtime.start_container(container_id)
            return
        except CriError as error:
            view = await deps.observer.refresh(memory.pod.uid)
            one = view.container(container_id)
            if one is not None and one.started_at and one.state in (RunState.RUNNING, RunState.EXITED):
                return
            if _UNDER_WAY not in error.message or deps.clock.monotonic() > deadline:
                raise
        await deps.clock.sleep(pauses.next())
