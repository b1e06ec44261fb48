"""The agent's end: what keeps one part of it does not keep the others going."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from agent.build.core import Core


async def test_a_server_that_does_not_close_keeps_no_worker_going() -> None:
    """Seen on a machine without CPU: the step had its ten seconds, and the agent made new pods for as long as it was
    about to end."""
    closed: list[str] = []

    def part(name: str) -> Any:
        async def close(*_: object) -> None:
            closed.append(name)

        return SimpleNamespace(close=close, flush=close)

    async def hang() -> None:
        await asyncio.Event().wait()

    core = SimpleNamespace(
        probes=SimpleNamespace(stop=lambda: closed.append("probes")),
        server=SimpleNamespace(close=hang),
        pod_workers=part("workers"),
        pod_deps=SimpleNamespace(
            containers=SimpleNamespace(images=part("images")), status=SimpleNamespace(manager=part("status"))
        ),
        base=SimpleNamespace(settings=SimpleNamespace(standalone=False), events=part("events")),
    )
    core.stop_pods = lambda: Core.stop_pods(cast(Any, core))
    stop = asyncio.create_task(Core.stop_work(cast(Any, core)))
    await asyncio.wait({stop}, timeout=0.1)
    assert closed == ["probes", "workers", "images", "status", "events"]
    stop.cancel()
