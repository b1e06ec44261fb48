"""Between the agent and the runtime: errors, delays, answers that are lost after the work was done, and events that are
lost, doubled and late. What it does is decided by a seed, so that a failing run can be run again.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from agent.common.model.errors import CriError, CriUnavailable
from agent.runtime.model import RuntimeEvent
from nodelib.clock import Clock
from tests.fakes.fake_cri import FakeCri

_CALLS = {
    "list_sandboxes", "list_containers", "sandbox_status", "container_status", "run_sandbox", "stop_sandbox",
    "remove_sandbox", "create_container", "start_container", "stop_container", "remove_container", "image_status",
    "pull_image", "update_resources",
}  # fmt: skip


class FaultyCri:
    """Everything else is the inner runtime's. `rate` of the calls go wrong, 0: none."""

    def __init__(self, inner: FakeCri, seed: int, clock: Clock, rate: float = 0.2) -> None:
        self.inner, self.rate = inner, rate
        self._random, self._clock = random.Random(seed), clock
        self.faults: list[str] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        return self._bent(name, found) if name in _CALLS else found

    async def events(self) -> AsyncIterator[RuntimeEvent]:
        async for event in self.inner.events():
            fate = self._random.random()
            if fate < self.rate / 2:
                self.faults.append(f"lost {event.type}")
                continue
            if fate < self.rate:
                self.faults.append(f"late {event.type}")
                await self._clock.sleep(self._random.uniform(0, 2))
            yield event
            if self._random.random() < self.rate:
                yield event

    def _bent(self, name: str, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def bent(*args: Any, **more: Any) -> Any:
            fate = self._random.random()
            if fate >= self.rate:
                return await call(*args, **more)
            kind = self._random.choice(("refused", "unavailable", "slow", "answer lost"))
            self.faults.append(f"{name} {kind}")
            if kind == "refused":
                raise CriError("injected", code="UNKNOWN", step=name)
            if kind == "unavailable":
                raise CriUnavailable("injected", code="UNAVAILABLE", step=name)
            if kind == "slow":
                await self._clock.sleep(self._random.uniform(0, 3))
                return await call(*args, **more)
            await call(*args, **more)
            raise CriUnavailable("injected: it was done, and the answer is lost", code="DEADLINE_EXCEEDED", step=name)

        return bent
