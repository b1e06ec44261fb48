"""The rate limit of a gRPC service: a token bucket, as in upstream's pkg/kubelet/apis/grpc/ratelimit.go."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from nodelib.rate_limiter import TokenBucket

__all__ = ["RateLimit", "TokenBucket"]

_REFUSAL = "rejected by rate limit"  # clients compare this text


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
