"""What a pod uses and how fast its probes answer, for one browser: a short history, measured while somebody looks.

Usage has no watch, so the node is asked every few seconds; the API server is not asked at all.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from nodelib.clock import Clock
from nodelib.errors import NodewrightError
from nodelib.json_values import Json
from view.model.objects import Look
from view.model.pods import Cost
from view.plan import plots, texts
from view.ports import Answers

_EVERY = 3.0  # seconds
_SECONDS = 10.0  # for one answer
_MOMENTS = 60


async def follow(
    look: Look, pod: Callable[[], Json | None], answers: Answers, tell: Callable[[str], None], clock: Clock
) -> None:
    """Until cancelled. `pod()`: the pod as it is now, None when there is none."""
    history: deque[plots.Moment] = deque(maxlen=_MOMENTS)
    uid = None
    while True:
        obj = pod()
        if obj is not None and obj["metadata"].get("uid") != uid:
            uid = obj["metadata"].get("uid")
            history.clear()
        costs = await _asked(answers, obj) if obj is not None else ()
        if costs:
            history.append((clock.now(), costs))
        tell(texts.costs(look, plots.plots(tuple(history))))
        await clock.sleep(_EVERY)


async def _asked(answers: Answers, pod: Json) -> tuple[Cost, ...]:
    try:
        async with asyncio.timeout(_SECONDS):
            return await answers.costs(pod)
    except (NodewrightError, TimeoutError):
        return ()  # why the node does not answer is said above
