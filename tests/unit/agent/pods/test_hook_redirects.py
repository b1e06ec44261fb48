"""Lifecycle hooks over HTTP: whoever answers for a pod must not choose where the node sends a request."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web

from agent.common.model.pods import Pod
from agent.pods.edge.hook_http import HttpHooks
from agent.pods.work.hooks import Hooks
from nodelib.clock import SystemClock
from nodelib.errors import Permanent
from tests.builders.metrics import metrics, series

POD = Pod({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": {}})
HEADERS = [{"name": "Metadata-Flavor", "value": "Google"}, {"name": "Host", "value": "metadata"}]


class Site:
    """A web server at one address; `seen` has the requests that reached it."""

    def __init__(self) -> None:
        self.seen: list[web.Request] = []
        self.location = ""
        self.port = 0

    async def answer(self, request: web.Request) -> web.Response:
        self.seen.append(request)
        if request.path == "/there":
            return web.Response(text="arrived")
        return web.Response(status=302, headers={"Location": self.location}, text="x" * (1 << 20))


async def _serve(site: Site, host: str) -> web.AppRunner:
    app = web.Application()
    app.router.add_get("/{path:.*}", site.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, host, 0).start()
    site.port = runner.addresses[0][1]
    return runner


@pytest.fixture
async def sites() -> AsyncIterator[tuple[Site, Site]]:
    """The pod at 127.0.0.1, and what it must not reach at 127.0.0.2."""
    pod, victim = Site(), Site()
    runners = [await _serve(pod, "127.0.0.1"), await _serve(victim, "127.0.0.2")]
    yield pod, victim
    for runner in runners:
        await runner.cleanup()


async def _run(site: Site, scheme: str = "HTTP", fell_back: Callable[[], None] = lambda: None, **more: Any) -> None:
    action = {"port": site.port, "path": "/x", "scheme": scheme, "httpHeaders": HEADERS, **more}
    hooks = Hooks(None, HttpHooks(on_fallback=fell_back), SystemClock())  # type: ignore[arg-type]
    await hooks.run(POD, {"name": "c"}, "id", {"httpGet": action}, ("127.0.0.1",))


@pytest.mark.parametrize("scheme", ["HTTP", "HTTPS"])
async def test_a_redirect_to_another_host_ends_the_hook(sites: tuple[Site, Site], scheme: str) -> None:
    """Also where an https hook falls back to plain http. The hook has its answer: it succeeds, as upstream's."""
    pod, victim = sites
    pod.location = f"http://127.0.0.2:{victim.port}/latest/meta-data/iam/"
    await _run(pod, scheme)
    assert len(pod.seen) == 1 and victim.seen == []


async def test_an_https_hook_that_is_answered_in_plain_http_is_counted(sites: tuple[Site, Site]) -> None:
    measured = metrics()
    for scheme in ("HTTP", "HTTPS"):
        await _run(sites[0], scheme, measured.hook_http_fallbacks.inc, path="/there")
    assert series(measured, "kubelet_lifecycle_handler_http_fallbacks_total") == {(): 1}


async def test_a_redirect_on_the_host_is_followed(sites: tuple[Site, Site]) -> None:
    pod, _ = sites
    pod.location = "/there"
    await _run(pod)
    assert [one.path for one in pod.seen] == ["/x", "/there"]
    assert pod.seen[1].host == "metadata"


async def test_a_host_header_is_for_its_own_url_only(sites: tuple[Site, Site]) -> None:
    pod, _ = sites
    pod.location = f"http://127.0.0.1:{pod.port}/there"
    await _run(pod)
    assert [one.host for one in pod.seen] == ["metadata", f"127.0.0.1:{pod.port}"]


async def test_a_circle_ends(sites: tuple[Site, Site]) -> None:
    pod, _ = sites
    pod.location = "/x"
    with pytest.raises(Permanent, match="stopped after 10 redirects"):
        await _run(pod)
    assert len(pod.seen) == 10
