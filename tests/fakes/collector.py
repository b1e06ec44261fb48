"""A collector of OTLP: a real gRPC server that takes real requests, or fails as a test wants it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio

from nodelib.json_values import Json
from nodelib.plugin_apis.errors import Refused
from nodelib.traces.wire import trace_api


class Collector:
    """`spans`: what it took, with the attributes as a dict and the name of the service; `requests`: how many spans each
    request had.

    `refuse`: a gRPC status code that it answers instead, with `said`; `answer`: what it says otherwise, after `pause`
    seconds.
    """

    def __init__(self) -> None:
        self.spans: list[Json] = []
        self.requests: list[int] = []
        self.resources: list[Json] = []
        self.refuse, self.said = "", "no"
        self.pause = 0.0
        self.answer: Json = {}
        self.endpoint = ""

    async def _export(self, request: Json) -> Json:
        if self.pause:
            await asyncio.sleep(self.pause)
        if self.refuse:
            raise Refused(self.refuse, self.said)
        for resource in request["resource_spans"]:
            self.resources.append(attributes(resource["resource"]))
            service = self.resources[-1].get("service.name")
            for scope in resource["scope_spans"]:
                self.requests.append(len(scope["spans"]))
                self.spans += [{**one, "attributes": attributes(one), "service": service} for one in scope["spans"]]
        return self.answer

    def named(self, name: str) -> list[Json]:
        return [one for one in self.spans if one["name"] == name]


def attributes(holder: Json) -> dict[str, Any]:
    """As a dict; the service's other programs also send kinds of values that are left out here."""
    found = {}
    for one in holder["attributes"]:
        value = one.get("value") or {}
        found[one["key"]] = value.get("string_value") or value.get("int_value")
    return found


@asynccontextmanager
async def collector(address: str = "127.0.0.1:0") -> AsyncIterator[Collector]:
    """Listens at `address`; `endpoint` has the port."""
    made = Collector()
    server = grpc.aio.server(options=[("grpc.max_send_message_length", -1)])
    server.add_generic_rpc_handlers((trace_api().handler("TraceService", {"Export": made._export}),))
    port = server.add_insecure_port(address)
    made.endpoint = f"{address.rpartition(':')[0]}:{port}"
    await server.start()
    try:
        yield made
    finally:
        await server.stop(None)
