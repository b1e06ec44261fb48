"""Whether what came back is what an API server answers to the call: decides on bytes, touches nothing.

Whatever stands between a node and its API server may answer in its place, with a page, with nothing, with half a list
or with another node's objects. Such an answer with status 200 must not read as "there are no pods": every pod of the
node would be ended. client-go decodes such answers into empty lists; here each is refused with Unusable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import orjson

from nodelib.json_values import Json, object_or_empty
from nodelib.kube.errors import ApiError, NotServed
from nodelib.kube.selectors import selects

LONGEST_RETRY_AFTER = 30.0  # seconds; client-go waits for as long as it is told to
EVENT_TYPES = frozenset(("ADDED", "MODIFIED", "DELETED", "BOOKMARK"))
_NOT_SERVED = "this API server does not serve that: it is an older version, or the feature is switched off"
_NO_SUCH_PATH = b"404 page not found"  # net/http and go-restful on a path that they do not know
_STATUS_ONLY = frozenset((401, 403, 404, 409, 410))  # an API server explains each of these with a Status
_SHOWN = 200  # bytes of an answer in a message
_MOST_TEXT = 16 << 10  # bytes of an answer in plain text that are looked at


class Unusable(Exception):
    """An answer that no API server gives to this call. The message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Resource:
    """What a path names: a collection when `name` is "", else an object or one of its subresources.

    `namespace`: "" for what has none, and for a collection of all namespaces.
    """

    api_version: str
    plural: str
    name: str = ""
    subresource: str = ""
    namespace: str = ""


@dataclass(slots=True)
class Allowance:
    """How many bytes of events a watch may still send; None: any number."""

    left: int | None

    @property
    def is_spent(self) -> bool:
        return self.left is not None and self.left < 0

    def spend(self, size: int) -> None:
        """Raises Unusable."""
        if self.left is not None:
            self.left -= size
            if self.left < 0:
                raise Unusable("more bytes of initial events than are taken at once")


def resource_of(path: str) -> Resource | None:
    """The resource that a path names, None for /version, /readyz and the like."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        version, rest = parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        version, rest = f"{parts[1]}/{parts[2]}", parts[3:]
    else:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    return Resource(version, rest[0], rest[1] if len(rest) > 1 else "", "/".join(rest[2:]), namespace)


def failure(status: int, method: str, path: str, raw: bytes, retry_after: str | None) -> ApiError:
    """The error that an answer of status 300 or more stands for. Raises Unusable when no API server sent it."""
    call, body = f"{method} {path}", _json_or_none(raw)
    if not (isinstance(body, dict) and body.get("kind") == "Status"):
        if status == 404 and raw.strip() == _NO_SUCH_PATH:
            return NotServed(404, "NotFound", _NOT_SERVED, obj=call)
        if status < 400 or (status in _STATUS_ONLY and resource_of(path) is not None):
            raise Unusable(f"status {status} with {_shown(raw)}")
        return ApiError(status, "", _in_words(raw), obj=call, retry_after=seconds(retry_after))
    return status_error(body, call, code=status, retry_after=seconds(retry_after))


def _in_words(raw: bytes) -> str:
    """Of an answer in plain text; of a health check's, the parts that fail (k8s.io/apiserver/pkg/server/healthz)."""
    text = raw[:_MOST_TEXT].decode(errors="replace").strip()
    failing = [line.removeprefix("[-]") for line in text.splitlines() if line.startswith("[-]")]
    return ("; ".join(failing) or text)[:500]


def status_error(status: Json, call: str, *, code: int = 0, retry_after: float | None = None) -> ApiError:
    """The error of a metav1.Status; `code` overrides the one in it."""
    given = status.get("code")
    code = code or (given if isinstance(given, int) else 0) or 500
    reason, message = str(status.get("reason") or ""), str(status.get("message") or "")
    # If only the object is missing, the Status names its kind in the details.
    if code == 404 and not object_or_empty(status.get("details")).get("kind"):
        return NotServed(code, reason, _NOT_SERVED, obj=call)
    return ApiError(code, reason, message, obj=call, retry_after=retry_after)


def success(method: str, path: str, params: Mapping[str, str], content_type: str, raw: bytes) -> Json:
    """The object that an answer of status 200 to 299 holds. Raises Unusable."""
    resource = resource_of(path)
    if resource is None:
        body = _json_or_none(raw)
        return body if isinstance(body, dict) else {"message": raw[:500].decode(errors="replace")}
    if content_type != "application/json":
        raise Unusable(f"a {content_type or 'nameless'} answer: {_shown(raw)}")
    body = _json_or_none(raw)
    if not isinstance(body, dict):
        raise Unusable(f"no JSON object: {_shown(raw)}")
    if resource.subresource not in ("", "status"):
        return body
    if method == "DELETE":
        if not isinstance(body.get("kind"), str):
            raise Unusable(f"an object without a kind: {_shown(raw)}")
        return body
    if method == "GET" and not resource.name:
        _check_list(body, resource, params)
        return body
    _check_type(body, resource)
    if not resource.plural.endswith("reviews"):  # reviews are answered and not stored: they have no name
        _check_identity(body, resource, resource.name)
    return body


def event(path: str, params: Mapping[str, str], line: bytes) -> Json:
    """One event of a watch: type and object. Raises Unusable, and ApiError for an event of type ERROR."""
    found = _json_or_none(line)
    if not isinstance(found, dict):
        raise Unusable(f"a watch event that is not a JSON object: {_shown(line)}")
    kind, item = found.get("type"), found.get("object")
    if kind == "ERROR" and isinstance(item, dict) and item.get("kind") == "Status":
        raise status_error(item, f"WATCH {path}")
    if kind not in EVENT_TYPES or not isinstance(item, dict):
        raise Unusable(f"a watch event that is none: {_shown(line)}")
    resource = resource_of(path)
    if resource is not None:
        _check_type(item, resource)
    meta = object_or_empty(item.get("metadata"))
    if not _text(meta.get("resourceVersion")):
        raise Unusable(f"a watch event without a resourceVersion: {_shown(line)}")
    if kind != "BOOKMARK":
        _check_identity(item, resource)
        if not selects(params)(item):
            raise Unusable(f"a watch event about {meta['name']}, which was not asked for")
    return found


def seconds(text: str | None) -> float | None:
    """A Retry-After header in seconds, at most LONGEST_RETRY_AFTER; None for anything but a number of seconds."""
    text = (text or "").strip()
    if not (text.isascii() and text.isdigit()):
        return None
    return LONGEST_RETRY_AFTER if len(text) > 4 else min(float(text), LONGEST_RETRY_AFTER)


def resources_of_kind(kind: str) -> Iterator[str]:
    """The plurals that a kind may have in a path (UnsafeGuessKindToResource of apimachinery's pkg/api/meta)."""
    singular = kind.lower()
    yield singular if singular.endswith("endpoints") else f"{singular}s"
    if singular.endswith("s"):
        yield f"{singular}es"
    elif singular.endswith("y"):
        yield f"{singular[:-1]}ies"


def _check_list(body: Json, resource: Resource, params: Mapping[str, str]) -> None:
    kind, items, meta = body.get("kind"), body.get("items"), object_or_empty(body.get("metadata"))
    if not (isinstance(kind, str) and kind.endswith("List")):
        raise Unusable(f"no list of {resource.plural} but an object of kind {str(kind)[:_SHOWN]!r}")
    of_items = kind.removesuffix("List")
    _check_type({**body, "kind": of_items}, resource)
    if not isinstance(items, list) or not _text(meta.get("resourceVersion")):
        raise Unusable(f"a list of {resource.plural} without items or resourceVersion")
    more, left = meta.get("continue"), meta.get("remainingItemCount")
    if not isinstance(more or "", str) or (not more and isinstance(left, int) and left > 0):
        raise Unusable(f"a list of {resource.plural} that ends before its end")
    fits = selects(params)
    for item in items:
        if not isinstance(item, dict):
            raise Unusable(f"a list of {resource.plural} with an item that is not an object")
        _check_identity(item, resource)
        if item.get("kind", of_items) != of_items:  # most API servers leave it out
            raise Unusable(f"a list of {resource.plural} with an object of kind {str(item['kind'])[:_SHOWN]!r}")
        if not fits(item):
            raise Unusable(f"a list of {resource.plural} with {item['metadata']['name']}, which was not asked for")


def _check_type(body: Json, resource: Resource) -> None:
    kind = body.get("kind")
    if not isinstance(kind, str) or resource.plural not in resources_of_kind(kind):
        raise Unusable(f"an object of kind {str(kind)[:_SHOWN]!r} in the place of {resource.plural}")
    if body.get("apiVersion") != resource.api_version:
        raise Unusable(f"{resource.plural} of version {str(body.get('apiVersion'))[:_SHOWN]!r}")


def _check_identity(item: Json, resource: Resource | None, name: str = "") -> None:
    """Also takes away its managedFields."""
    meta = object_or_empty(item.get("metadata"))
    if not _text(meta.get("name")) or not _text(meta.get("uid")) or not isinstance(meta.get("namespace", ""), str):
        raise Unusable("an object without metadata.name and metadata.uid")
    # No part of a node reads them. They are a third of an object, and its user may nest them 10,000 levels deep.
    meta.pop("managedFields", None)
    if name and meta["name"] != name:
        raise Unusable(f"the object {meta['name'][:_SHOWN]!r} in the place of {name!r}")
    wanted = resource.namespace if resource is not None else ""
    # The same name in another namespace is somebody else's Secret.
    if wanted and meta.get("namespace", wanted) != wanted:
        raise Unusable(f"an object of the namespace {meta['namespace'][:_SHOWN]!r} in the place of {wanted!r}")


def _text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _json_or_none(raw: bytes) -> object:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None


def _shown(raw: bytes) -> str:
    return repr(raw[:_SHOWN].decode(errors="replace")) if raw.strip() else "nothing in it"
