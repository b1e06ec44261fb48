"""The fake API server with the parts that pods need: TokenRequest, and objects made with one call."""

from __future__ import annotations

import base64
import json
from typing import Any

from aiohttp import web

from nodelib.clock import Clock
from nodelib.json_values import Json
from nodelib.kube.times import format_rfc3339
from tests.fakes.apiserver import FakeApiServer, failure


class FakePodApi(FakeApiServer):
    """Tokens are "token-N for AUDIENCE"; `token_failures` is a list of HTTP codes to answer first.

    PodCertificateRequests of all namespaces lie in one collection, which is how a node watches them.
    """

    certificate_requests = "/apis/certificates.k8s.io/v1/podcertificaterequests"

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self.token_requests: list[Json] = []
        self.token_failures: list[int] = []

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        collection = request.path.split("/")[-2]
        known = request.path in self.objects or self.fail_with
        if request.method == "GET" and collection in ("configmaps", "secrets") and not known:
            self.requests.append((request.method, request.path_qs))
            return failure(404, "NotFound")
        if request.method == "POST" and request.path.endswith("/podcertificaterequests"):
            return await self._request_certificate(request)
        if request.method != "POST" or not request.path.endswith("/token"):
            return await super()._handle(request)
        if self.token_failures:
            return failure(self.token_failures.pop(0), "Injected")
        body = json.loads(await request.read())
        self.token_requests.append(body)
        spec = body["spec"]
        audience = ",".join(spec["audiences"]) or "api"
        expires = format_rfc3339(self._clock.now() + spec["expirationSeconds"])
        status = {"token": f"token-{len(self.token_requests)} for {audience}", "expirationTimestamp": expires}
        return web.json_response({"kind": "TokenRequest", "spec": spec, "status": status}, status=201)

    async def _request_certificate(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.path_qs))
        body = json.loads(await request.read())
        name = f"{body['metadata']['generateName']}{self.version}"
        body["metadata"] |= {"name": name, "namespace": request.path.split("/")[-2]}
        await self.put(f"{self.certificate_requests}/{name}", body)
        return web.json_response(self.objects[f"{self.certificate_requests}/{name}"], status=201)

    async def answer_certificate(self, name: str, status: Json) -> None:
        path = f"{self.certificate_requests}/{name}"
        await self.put(path, {**self.objects[path], "status": status})

    async def config_map(self, name: str, data: dict[str, str], namespace: str = "shop", **fields: Any) -> None:
        path = f"/api/v1/namespaces/{namespace}/configmaps/{name}"
        await self.put(path, {"metadata": {"name": name, "namespace": namespace}, "data": data, **fields})

    async def secret(self, name: str, data: dict[str, bytes], namespace: str = "shop", **fields: Any) -> None:
        coded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        path = f"/api/v1/namespaces/{namespace}/secrets/{name}"
        await self.put(path, {"metadata": {"name": name, "namespace": namespace}, "data": coded, **fields})
