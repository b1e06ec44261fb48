"""What may come back in an API server's place: answers of broken balancers, captive portals, and worse.

`LISTS` are answers to a list or get, `WATCHES` to a watch, `STREAMS` to one that asks for initial events. Each is a
function of the request and of what the true answer would have been (for a watch only its initial events, if it asks for
them), and sends what it likes.
"""

from __future__ import annotations

import asyncio
import functools
import gzip
import itertools
import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from nodelib.kube.streaming_list import END

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
    "nothing": _text("", "text/plain"),
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


def _initial(change: Callable[[list[dict[str, Any]]], object], *, then: str = "end") -> Nonsense:
    """The initial events with a change of the list of them, or another list; `then`: "end", "cut" or "hang"."""

    async def answer(request: web.Request, true: bytes) -> web.StreamResponse:
        events = [json.loads(line) for line in true.splitlines()]
        changed = change(events)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for event in changed if isinstance(changed, list) else events:
            await response.write(json.dumps(event).encode() + b"\n")
        if then == "cut" and request.transport is not None:
            request.transport.abort()
        elif then == "hang":
            await asyncio.sleep(3600)
        return response

    return answer


def _endless_events(event: Callable[[int], dict[str, Any]], pause: float = 0.0) -> Nonsense:
    """After the true events without the last, others one after the other until the client has had enough."""

    async def answer(request: web.Request, true: bytes) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        await response.write(b"\n".join(true.splitlines()[:-1]) + b"\n")
        for number in itertools.count():
            await response.write(json.dumps({"type": "ADDED", "object": event(number)}).encode() + b"\n")
            await asyncio.sleep(pause)
        return response

    return answer


def _another(number: int, size: int = 0) -> dict[str, Any]:
    meta = {"name": f"flood-{number}", "namespace": "default", "uid": f"f{number}", "resourceVersion": "9"}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": meta, "spec": {"nodeName": "n1", "padding": "x" * size}}


def _error(code: int, reason: str, message: str) -> dict[str, Any]:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return {"type": "ERROR", "object": {**status, "message": message}}


def _status(code: int, reason: str, message: str) -> Nonsense:
    return _text(json.dumps(_error(code, reason, message)["object"]), status=code)


def _end_says(meta: dict[str, Any]) -> Callable[[list[dict[str, Any]]], object]:
    """The metadata of the bookmark at the end."""
    return lambda events: events[-1]["object"].update(metadata=meta)


_TOO_NEW = "Too large resource version: 9, current: 3"
STREAMS: dict[str, Nonsense] = {
    **{name: WATCHES[name] for name in ("a page", "nothing", "an event of another kind", "an event that is cut")},
    "an end at once": WATCHES["an end at once"],
    "an end without a bookmark": _initial(lambda events: events[:-1]),
    "a cut half-way": _initial(lambda events: events[:1], then="cut"),
    "a cut before anything": _initial(lambda events: [], then="cut"),
    "a bookmark that never comes": _initial(lambda events: events[:-1], then="hang"),
    "nothing at all, ever": _initial(lambda events: [], then="hang"),
    "a bookmark without a version": _initial(_end_says({"annotations": {END: "true"}})),
    "a bookmark with an empty version": _initial(_end_says({"annotations": {END: "true"}, "resourceVersion": ""})),
    "a bookmark without an object": _initial(lambda events: [{"type": "BOOKMARK"}]),
    "a bookmark whose word is another": _initial(
        _end_says({"resourceVersion": "9", "annotations": {END: "false"}}), then="hang"
    ),
    "annotations that are none": _initial(_end_says({"resourceVersion": "9", "annotations": 7}), then="hang"),
    "a bookmark's word on an object": _initial(
        lambda events: events[0]["object"]["metadata"].update(annotations={END: "true"}) or events[:1], then="hang"
    ),
    "a bookmark of another kind": _initial(
        lambda events: [{"type": "BOOKMARK", "object": {**events[-1]["object"], "kind": "Secret"}}]
    ),
    "objects that were not asked for": _initial(
        lambda events: [{"type": "ADDED", "object": {**_another(1), "spec": {"nodeName": "another"}}}, events[-1]]
    ),
    "an error half-way: too old": _initial(lambda events: [events[0], _error(410, "Expired", "too old")]),
    "an error half-way: too new": _initial(lambda events: [events[0], _error(504, "Timeout", _TOO_NEW)]),
    "an error half-way: internal": _initial(lambda events: [events[0], _error(500, "InternalError", "oh")]),
    "refused: invalid": _status(422, "Invalid", "sendInitialEvents is forbidden for watch"),
    "refused: bad request": _status(400, "BadRequest", "what?"),
    "refused: too new": _status(504, "Timeout", _TOO_NEW),
    "refused: expired": _status(410, "Expired", "too old"),
    "refused: forbidden": _status(403, "Forbidden", "no"),
    "refused: unavailable": _status(503, "ServiceUnavailable", "later"),
    "events without an end": _endless_events(lambda number: _another(0), 0.001),
    "objects without an end": _endless_events(_another),
    "bytes without an end": _endless_events(lambda number: _another(0, _MIB)),
}
