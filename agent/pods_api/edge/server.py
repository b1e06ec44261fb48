"""The socket of the pods API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, contextmanager
from typing import Any, Protocol

from agent.plugins.edge.apis import PODS
from agent.plugins.edge.rate_limit import RateLimit, TokenBucket
from agent.pods_api.edge.metrics import PodsApiMetrics
from nodelib.errors import NodewrightError
from nodelib.json_values import Json
from nodelib.plugin_apis.server import serve
from nodelib.plugin_apis.wire import Stream, Unary, status_of

_CALLS_A_SECOND, _BURST = 100, 10  # pkg/kubelet/apis/pods/constants.go; watches are limited in number instead
_WATCH = "Pods.WatchPods"


class Answers(Protocol):
    """pods_api/work/answers.py PodAnswers."""

    @property
    def list_pods(self) -> Unary: ...

    @property
    def get_pod(self) -> Unary: ...

    @property
    def watch_pods(self) -> Callable[[Json], AsyncGenerator[Json]]: ...

    async def run(self) -> None: ...


class PodsApiServer:
    """Serves `answers` at `socket`. run() is long-lived."""

    def __init__(
        self, socket: str, answers: Answers, metrics: PodsApiMetrics, *, monotonic: Callable[[], float]
    ) -> None:
        self._socket, self._answers, self._metrics = socket, answers, metrics
        self._bucket = TokenBucket(_CALLS_A_SECOND, _BURST, monotonic)

    async def run(self) -> None:
        """Until cancelled. Raises Temporary when the socket cannot be created."""
        methods: dict[str, Unary | Stream] = {
            "ListPods": self._counted("ListPods", self._answers.list_pods),
            "GetPod": self._counted("GetPod", self._answers.get_pod),
            "WatchPods": self._watch,
        }
        limit = RateLimit(self._bucket, unlimited=frozenset({PODS.calls[_WATCH].path}))
        server = await serve(self._socket, [PODS.handler("Pods", methods)], [limit])
        try:
            await self._answers.run()
        finally:
            await server.stop(None)

    def _counted(self, method: str, work: Unary) -> Unary:
        async def answer(request: Json) -> Json:
            with self._count(method):
                return await work(request)

        return answer

    async def _watch(self, request: Json) -> AsyncIterator[Json]:
        with self._count("WatchPods"):
            async with aclosing(self._answers.watch_pods(request)) as events:
                async for event in events:
                    yield event

    @contextmanager
    def _count(self, method: str) -> Any:
        code = "OK"
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit):
            code = "Canceled"
            raise
        except NodewrightError as error:
            code = status_of(error).name.title().replace("_", "")
            raise
        finally:
            self._metrics.answered(method, code)
