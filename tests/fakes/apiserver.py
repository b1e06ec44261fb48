"""An API server in memory that interprets list, watch, create, replace, merge patch and delete.

Speaks HTTP through aiohttp, so the real client and reflector run against it. It knows no
kinds: any path is a collection, `/…/name` an object of it.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from typing import Any, Self

from aiohttp import web

from nodelib.json_values import Json
from nodelib.kube.answers import resource_of
from nodelib.kube.selectors import selects
from nodelib.kube.streaming_list import END
from tests.fakes.nonsense import Nonsense


class FakeApiServer:
    """`async with FakeApiServer() as api: KubeClient(ClusterAccess(api.url))`. Failure switches are attributes.

    `nonsense`: what answers a request in this server's place, None for this server (tests/fakes/nonsense.py).
    `streams`: whether a watch may ask for initial events (the API server's gate WatchList).
    """

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.history: list[tuple[int, str, str, Json]] = []
        self.version = 1
        self.compacted = 0
        self.fail_with: list[int] = []
        self.streams = True
        self.nonsense: Callable[[web.Request], Nonsense | None] = lambda request: None
        self.requests: list[tuple[str, str]] = []
        self._made: dict[str, int] = {}
        self._changed = asyncio.Condition()
        self._runner: web.AppRunner | None = None
        self._watches: set[asyncio.Task[Any]] = set()
        self.url = ""

    async def __aenter__(self) -> Self:
        listener = socket.create_server(("127.0.0.1", 0))
        await self.serve(listener)
        return self

    async def serve(self, listener: socket.socket) -> None:
        """On a socket that the caller has made: it may be in another network namespace."""
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.SockSite(self._runner, listener).start()
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        self.drop_watches()
        await self._runner.cleanup()

    async def put(self, path: str, obj: Json) -> None:
        """Create or replace from outside, as another client would."""
        await self._store(path, obj, "MODIFIED" if path in self.objects else "ADDED")

    async def remove(self, path: str) -> None:
        await self._store(path, self.objects.pop(path), "DELETED")

    def drop_watches(self) -> None:
        """Cut every open watch, as a restart of the server would."""
        for task in list(self._watches):
            task.cancel()

    def compact(self) -> None:
        """Forget history: a watch from an older version gets 410 Gone."""
        self.compacted = self.version
        self.history.clear()

    async def _store(self, path: str, obj: Json, kind: str) -> None:
        async with self._changed:
            self.version += 1
            obj = {**_type_of(path), **obj}
            self._made[path] = self._made.get(path, 0) + (kind == "ADDED")
            again = f"-{self._made[path]}" if self._made[path] > 1 else ""  # an object that is made anew is another
            given = {"uid": f"uid-of-{path.rpartition('/')[2]}{again}", **obj["metadata"]}
            obj["metadata"] = {**given, "resourceVersion": str(self.version)}
            if kind != "DELETED":
                self.objects[path] = obj
            self.history.append((self.version, kind, path, obj))
            self._changed.notify_all()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.path_qs))
        if self.fail_with:
            return failure(self.fail_with.pop(0), "Injected")
        path = request.path
        watch = request.method == "GET" and bool(request.query.get("watch"))
        if (nonsense := self.nonsense(request)) is not None:
            return await nonsense(request, self._true(path, request))
        if watch:
            return await self._watch(request)
        if request.method == "GET":
            return web.json_response(self.objects[path]) if path in self.objects else self._list(path, request)
        return await self._write(request, path)

    def _true(self, path: str, request: web.Request) -> bytes:
        """What this server would have answered: the list, or the initial events of a watch."""
        if "sendInitialEvents" in request.query:
            return b"".join(self._initial(request))
        body = self._list(path, request).body if request.method == "GET" and "watch" not in request.query else b""
        return body if isinstance(body, bytes) else b""

    def _initial(self, request: web.Request) -> list[bytes]:
        found = [obj for key, obj in self.objects.items() if key.rpartition("/")[0] == request.path]
        events: list[Json] = [{"type": "ADDED", "object": obj} for obj in found if _selected(request, obj)]
        meta = {"resourceVersion": str(self.version), "annotations": {END: "true"}}
        events.append({"type": "BOOKMARK", "object": {**_type_of(f"{request.path}/"), "metadata": meta}})
        return [json.dumps(event).encode() + b"\n" for event in events]

    def _list(self, path: str, request: web.Request) -> web.Response:
        items = [obj for key, obj in self.objects.items() if key.rpartition("/")[0] == path and _selected(request, obj)]
        named = resource_of(path)
        if named is not None and named.name:
            return failure(404, "NotFound")
        start, limit = int(request.query.get("continue", 0)), int(request.query.get("limit", 0)) or len(items)
        meta = {"resourceVersion": str(self.version)}
        if start + limit < len(items):
            meta["continue"] = str(start + limit)
        listed = {**_type_of(f"{path}/"), "metadata": meta, "items": items[start : start + limit]}
        kind = next((one["kind"] for one in items if one.get("kind", "").lower() == listed["kind"].lower()), "")
        return web.json_response({**listed, "kind": f"{kind or listed['kind']}List"})

    async def _write(self, request: web.Request, path: str) -> web.Response:
        body = json.loads(await request.read() or b"{}")
        if request.method == "DELETE":
            if path not in self.objects:
                return failure(404, "NotFound")
            await self.remove(path)
            return web.json_response({"kind": "Status", "apiVersion": "v1", "status": "Success"})
        if request.method == "POST":
            path = f"{path}/{body['metadata']['name']}"
            if path in self.objects:
                return failure(409, "AlreadyExists")
        elif path not in self.objects:
            return failure(404, "NotFound")
        if request.method == "PATCH":
            body = merge(self.objects[path], body)
        elif request.method == "PUT":
            sent = body["metadata"].get("resourceVersion")
            if sent and sent != self.objects[path]["metadata"]["resourceVersion"]:
                return failure(409, "Conflict")
        await self.put(path, body)
        return web.json_response(self.objects[path])

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        asks = "sendInitialEvents" in request.query
        if asks and not self.streams:
            return failure(422, "Invalid")
        seen = self.version if asks else int(request.query["resourceVersion"])
        if seen < self.compacted:
            return failure(410, "Expired")
        initial = self._initial(request) if asks else []
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        task = asyncio.current_task()
        assert task is not None
        self._watches.add(task)
        try:
            for line in initial:
                await response.write(line)
            while True:
                async with self._changed:
                    fresh = [entry for entry in self.history if entry[0] > seen]
                    if not fresh:
                        await self._changed.wait()
                        continue
                for version, kind, path, obj in fresh:
                    seen = version
                    if path.rpartition("/")[0] == request.path and _selected(request, obj):
                        await response.write(json.dumps({"type": kind, "object": obj}).encode() + b"\n")
        finally:
            self._watches.discard(task)


def _type_of(path: str) -> Json:
    """Kind and apiVersion of an object. The kind is guessed from the plural, as clients guess the other way."""
    parts = path.strip("/").split("/")
    version = parts[1] if parts[0] == "api" else "/".join(parts[1:3])
    plural = path.split("/")[-2]
    for end, single in (("sses", "ss"), ("ies", "y"), ("s", "")):
        if plural.endswith(end):
            plural = plural.removesuffix(end) + single
            break
    return {"kind": plural.capitalize(), "apiVersion": version}


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def _selected(request: web.Request, obj: Json) -> bool:
    return selects(request.query)(obj)


def failure(code: int, reason: str) -> web.Response:
    status: Json = {"kind": "Status", "status": "Failure", "code": code, "reason": reason}
    named: Json = {"message": f"{reason} ({code})", "details": {"kind": "things"}}
    return web.json_response({**status, **named}, status=code)
