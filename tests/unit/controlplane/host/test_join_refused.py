"""`join` with a kubeconfig whose user may not: one error that says what to do, of several that come at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiohttp import web

from controlplane.host.work.join import Request, join
from nodelib.clock import SystemClock
from nodelib.errors import Permanent
from nodelib.kube.access import ClusterAccess, save_kubeconfig


class Unseen:
    """Progress that nobody looks at."""

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[Callable[[str], None]]:
        yield lambda detail: None


class Hasty(SystemClock):
    """Nobody waits: time goes on by what was slept."""

    def __init__(self) -> None:
        self._slept = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self._slept

    async def sleep(self, seconds: float) -> None:
        self._slept += max(seconds, 1.0)
        await asyncio.sleep(0)


async def test_rights_that_an_admin_s_kubeconfig_lacks_are_named(tmp_path: Path) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.json_response({"kind": "Status", "reason": "Forbidden", "message": "may not"}, status=403)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", refuse)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    config = str(tmp_path / "kubeconfig")
    save_kubeconfig(config, ClusterAccess(f"http://127.0.0.1:{runner.addresses[0][1]}", token="x"))
    try:
        with pytest.raises(Permanent, match="may not") as refused:
            await join(Request(kubeconfig=config, node="n1"), Unseen(), Hasty())
    finally:
        await runner.cleanup()
    assert refused.value.obj == config and "Only an admin has these rights" in refused.value.action
