"""The API client of a standalone agent, which has no API server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping

from nodelib.json_values import Json
from nodelib.kube.access import ClusterAccess
from nodelib.kube.answers import Allowance
from nodelib.kube.client import ApiUnreachable, KubeClient


class NoApi(KubeClient):
    """Every call raises ApiUnreachable at once."""

    def __init__(self) -> None:
        super().__init__(ClusterAccess(""), user_agent="")

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Json | list[Json] | None = None,
        content_type: str = "application/json",
        params: Mapping[str, str] | None = None,
    ) -> Json:
        raise self._none(f"{method} {path}")

    async def stream(
        self,
        path: str,
        params: Mapping[str, str],
        *,
        on_open: Callable[[], None] | None = None,
        allowance: Allowance | None = None,
    ) -> AsyncGenerator[Json, None]:
        raise self._none(f"WATCH {path}")
        yield {}  # makes this a generator, as the caller expects

    def _none(self, step: str) -> ApiUnreachable:
        return ApiUnreachable(
            "this agent runs standalone, without an API server",
            step=step,
            action="Give --kubeconfig to join it to a cluster.",
        )
