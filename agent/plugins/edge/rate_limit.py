"""How often a service of ours may be asked: a bucket of tokens, as upstream's (pkg/kubelet/apis/grpc/ratelimit.go)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

_REFUSAL = "rejected by rate limit"  # clients of upstream's compare the words too


class TokenBucket:
    """Holds `burst` tokens, full at first, and gains `rate` of them a second. `monotonic` tells seconds."""

    def __init__(self, rate: float, burst: int, monotonic: Callable[[], float]) -> None:
        self._rate, self._burst, self._monotonic = rate, burst, monotonic
        self._tokens, self._since = float(burst), monotonic()

    def take(self) -> bool:
        """One token, or nothing when less than one is there."""
        now = self._monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._since) * self._rate)
        self._since = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class RateLimit(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Refuses calls for which the bucket has no token, before their handlers hear of them: RESOURCE_EXHAUSTED."""

    def __init__(self, bucket: TokenBucket) -> None:
        self._bucket = bucket

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[grpc.RpcMethodHandler]], handler_call_details: Any
    ) -> grpc.RpcMethodHandler:
        if self._bucket.take():
            return await continuation(handler_call_details)
        return grpc.unary_unary_rpc_method_handler(_refuse)


async def _refuse(_: bytes, context: Any) -> None:
    await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, _REFUSAL)
