"""The rate limit of a gRPC service: a token bucket, as in upstream's pkg/kubelet/apis/grpc/ratelimit.go."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

_REFUSAL = "rejected by rate limit"  # clients compare this text


class TokenBucket:
    """Holds `burst` tokens, is full at first and gains `rate` tokens a second. `monotonic()` in seconds."""

    def __init__(self, rate: float, burst: int, monotonic: Callable[[], float]) -> None:
        self._rate, self._burst, self._monotonic = rate, burst, monotonic
        self._tokens, self._since = float(burst), monotonic()

    def take(self) -> bool:
        """Take one token; False: there is less than one."""
        now = self._monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._since) * self._rate)
        self._since = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class RateLimit(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Refuses calls without a token as RESOURCE_EXHAUSTED, before their handlers run. `unlimited`: paths of calls."""

    def __init__(self, bucket: TokenBucket, unlimited: frozenset[str] = frozenset()) -> None:
        self._bucket, self._unlimited = bucket, unlimited

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[grpc.RpcMethodHandler]], handler_call_details: Any
    ) -> grpc.RpcMethodHandler:
        if handler_call_details.method in self._unlimited or self._bucket.take():
            return await continuation(handler_call_details)
        return grpc.unary_unary_rpc_method_handler(_refuse)


async def _refuse(_: bytes, context: Any) -> None:
    await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, _REFUSAL)
