"""What may come back in an API server's place: answers of broken balancers, captive portals, and worse.

`LISTS` are answers to a list or get, `WATCHES` to a watch. Each is a function of the request and of what the true
answer would have been (status and body), and sends what it likes.
"""

from __future__ import annotations

import asyncio
import functools
import gzip
import json
from collections.abc import Awaitable, Callable

from aiohttp import web

PAGE = "<html><body>Down for maintenance</body></html>"
_MIB = 1 << 20


Nonsense = Callable[[web.Request, bytes], Awaitable[web.StreamResponse]]


def _text(body: str | bytes, kind: str = "application/json", status: int = 200, **headers: str) -> Nonsense:
    data = body.encode() if isinstance(body, str) else body

    async def answer(request: web.Request, true: bytes) -> web.StreamResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(body=data, status=status, headers={"Content-Type": kind, **named})

    return answer


def _changed(change: Callable[[dict[str, object]], object]) -> Nonsense:
    async def answer(request: web.Request, true: bytes) -> web.StreamResponse:
        return web.json_response(change(json.loads(true)))

    return answer


def _without(*names: str) -> Nonsense:
    return _changed(lambda body: {key: value for key, value in body.items() if key not in names})


async def _half(request: web.Request, true: bytes) -> web.StreamResponse:
    """Half of the bytes, and an end as if that were all."""
    return web.Response(body=true[: len(true) // 2], content_type="application/json")


async def _broken_off(request: web.Request, true: bytes) -> web.StreamResponse:
    """Half of the bytes that were promised."""
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": str(len(true))})
    await response.prepare(request)
    await response.write(true[: len(true) // 2])
    if request.transport is not None:
        request.transport.close()
    return response


async def _hang(request: web.Request, true: bytes) -> web.StreamResponse:
    await asyncio.sleep(3600)
    raise AssertionError("nobody waits so long")


async def _endless(request: web.Request, true: bytes) -> web.StreamResponse:
    """Pages that say for ever that there are more."""
    body = json.loads(true)
    body["metadata"]["continue"] = "more"
    return web.json_response(body)


async def _huge(request: web.Request, true: bytes) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    for _ in range(300):
        await response.write(b" " * _MIB)
    return response


@functools.cache
def _packed() -> bytes:
    return gzip.compress(b" " * (300 * _MIB), 9)


async def _bomb(request: web.Request, true: bytes) -> web.StreamResponse:
    return web.Response(body=_packed(), headers={"Content-Type": "application/json", "Content-Encoding": "gzip"})


def _cut_short(body: dict[str, object]) -> object:
    return {**body, "items": [], "metadata": {"resourceVersion": "9", "remainingItemCount": 3}}


def _foreign(body: dict[str, object]) -> object:
    spec = {"nodeName": "another-node", "clusterIP": "None", "containers": [{"name": "c", "image": "i"}]}
    labels = {"service.kubernetes.io/headless": ""}
    meta = {"name": "foreign", "namespace": "default", "uid": "f", "resourceVersion": "9", "labels": labels}
    return {**body, "items": [{"metadata": meta, "spec": spec}]}


LISTS: dict[str, Nonsense] = {
    "a page": _text(PAGE, "text/html"),
    "a page that says it is JSON": _text(PAGE),
    "nothing": _text("", "text/plain"),
    "nothing that says it is JSON": _text(""),
    "an empty object": _text("{}"),
    "an empty list of JSON": _text("[]"),
    "a string": _text('"ok"'),
    "null": _text("null"),
    "a Status of success": _text('{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}'),
    "a list of something else": _text(
        '{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[]}'
    ),
    "a list of another version": _changed(lambda body: {**body, "apiVersion": "v0", "items": []}),
    "a table": _text('{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"9"},"rows":[]}'),
    "a list without items": _without("items"),
    "items that are null": _changed(lambda body: {**body, "items": None}),
    "items that are no objects": _changed(lambda body: {**body, "items": [1, None, "x"]}),
    "items without a name": _changed(lambda body: {**body, "items": [{"metadata": {}}]}),
    "items without a uid": _changed(lambda body: {**body, "items": [{"metadata": {"name": "x"}}]}),
    "a list without metadata": _changed(lambda body: {**body, "metadata": None, "items": []}),
    "a list without a version": _changed(lambda body: {**body, "metadata": {"resourceVersion": ""}, "items": []}),
    "a list that ends too soon": _changed(_cut_short),
    "objects that were not asked for": _changed(_foreign),
    "an empty list as a page": lambda request, true: _text(json.dumps({**json.loads(true), "items": []}), "text/html")(
        request, true
    ),
    "half a list": _half,
    "half a list, broken off": _broken_off,
    "pages without an end": _endless,
    "300 MiB": _huge,
    "300 MiB in a small gzip": _bomb,
    "a broken gzip": _text(b"\x1f\x8b\x08garbage", Content_Encoding="gzip"),
    "a redirect": _text("", status=302, Location="/api/v1/empty"),
    "a page 404": _text(PAGE, "text/html", 404),
    "a page 401": _text(PAGE, "text/html", 401),
    "a page 410": _text(PAGE, "text/html", 410),
    "a page 503": _text(PAGE, "text/html", 503),
    "too many requests": _text("slow down", "text/plain", 429, Retry_After="1"),
    "too many requests, come back next year": _text("slow down", "text/plain", 429, Retry_After="31536000"),
    "too many requests, come back in ²": _text("slow down", "text/plain", 429, Retry_After="²"),
    "a number of levels": _text('{"items":' * 5000),
    "no answer": _hang,
}


def _lines(*lines: str | bytes, kind: str = "application/json") -> Nonsense:
    async def answer(request: web.Request, true: bytes) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": kind})
        await response.prepare(request)
        for line in lines:
            await response.write(line.encode() if isinstance(line, str) else line)
        return response

    return answer


async def _line_without_end(request: web.Request, true: bytes) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    await response.write(b'{"type":"ADDED","object":{"x":"')
    for _ in range(100):
        await response.write(b"x" * _MIB)
    await response.write(b'"}}\n')
    return response


def _gone(status: int) -> Nonsense:
    body = {"kind": "Status", "apiVersion": "v1", "code": 410, "reason": "Expired", "message": "too old"}
    if status == 200:
        return _lines(json.dumps({"type": "ERROR", "object": body}) + "\n")
    return _text(json.dumps(body), status=status)


WATCHES: dict[str, Nonsense] = {
    "a page": _text(PAGE, "text/html"),
    "a page that says it is JSON": _text(PAGE),
    "an end at once": _lines(),
    "events that are numbers": _lines("1\n2\n"),
    "an event without an object": _lines('{"type":"DELETED"}\n'),
    "an event without a type": _lines('{"object":{"metadata":{"name":"x","uid":"y","resourceVersion":"9"}}}\n'),
    "an event of an unknown type": _lines('{"type":"EXPLODED","object":{"metadata":{"resourceVersion":"9"}}}\n'),
    "an event about nothing": _lines('{"type":"DELETED","object":{}}\n'),
    "an event whose object is a list": _lines('{"type":"ADDED","object":[]}\n'),
    "an event of another kind": _lines(
        '{"type":"DELETED","object":{"kind":"Secret","apiVersion":"v1",'
        '"metadata":{"name":"p0","namespace":"default","uid":"u","resourceVersion":"9"}}}\n'
    ),
    "an error that is none": _lines('{"type":"ERROR","object":7}\n'),
    "an error with a strange code": _lines('{"type":"ERROR","object":{"kind":"Status","code":"many","message":[]}}\n'),
    "an event that is cut": _lines('{"type":"DELETED","obj'),
    "a line of 100 MiB": _line_without_end,
    "bytes": _lines(b"\x00\xff\xfe\n" * 10),
    "a version that is always too old": _gone(410),
    "an event that says so": _gone(200),
    "a page 404": _text(PAGE, "text/html", 404),
    "too many requests": _text("slow down", "text/plain", 429, Retry_After="1"),
}
