"""From the bytes of a manifest to its pods (pkg/kubelet/config/common.go).

A file holds one Pod, a URL one Pod or a PodList. The node's name is appended to the pod's. Its UID is a hash of the
manifest's content and place, so that a changed manifest is another pod and a rewritten one is the same; one that the
manifest states is used unless it is a pod's of the API. Annotations mark it as a static pod.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import yaml

from agent.common.model import labels
from agent.common.model.pods import Pod
from agent.static.plan import schema, validation
from agent.static.plan.defaults import defaulted
from nodelib import safe_yaml
from nodelib.errors import Invalid
from nodelib.json_values import Json

LARGEST = 10 << 20  # bytes, as upstream
_LIMITS = safe_yaml.Limits(LARGEST, values=200_000)
_ACTION = "Correct it: it is read again as soon as it changes; until then its pod keeps running as before."
_TOLERATION = {"operator": "Exists", "effect": "NoExecute"}
_OF_THE_API = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""UIDs as an API server gives them."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a manifest comes from. `source`: "file" or "http"; `place`: the path or the URL."""

    source: str
    place: str
    node_name: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The pods of one manifest, and warnings for its author."""

    pods: tuple[Pod, ...]
    warnings: tuple[str, ...] = ()


_WHOLE = re.compile(r"^[-+]?(0b[01_]+|0[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)\Z")
_INT, _TIMESTAMP = "tag:yaml.org,2002:int", "tag:yaml.org,2002:timestamp"


class _Loader(yaml.CSafeLoader):
    """Reads scalars as sigs.k8s.io/yaml does: a date or 12:30 stays text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, _WHOLE if tag == _INT else pattern) for tag, pattern in known if tag != _TIMESTAMP]
    for first, known in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def decode(data: bytes, origin: Origin, now: str) -> Manifest:
    """`now` (RFC 3339): when the node read it. Raises Invalid, which names the place and every error."""
    if len(data) > LARGEST:
        raise _refusal(origin, [f"it is larger than {LARGEST >> 20} MiB"])
    documents = _documents(data, origin)
    if not documents:
        raise _refusal(origin, ["it is empty"])
    warnings = []
    if len(documents) > 1:
        warnings.append(f"{origin.place} has {len(documents)} documents: only the first one is read")
    pods = []
    for raw in _items(documents[0], origin):
        found = list(schema.problems(raw))
        if found:
            raise _refusal(origin, found)
        pod = _static_pod(raw, origin, now)
        _check(pod, origin)
        warning = validation.priority_warning(pod) or _uid_warning(raw, pod)
        if warning:
            warnings.append(f"{origin.place}: pod {pod.full_name} {warning}")
        pods.append(pod)
    return Manifest(tuple(pods), tuple(warnings))


def _documents(data: bytes, origin: Origin) -> list[Any]:
    text = ""
    try:
        text = data.decode("utf-8-sig")
        return [_plain(one) for one in safe_yaml.load_all(text, _LIMITS, _Loader) if one is not None]
    except yaml.MarkedYAMLError as error:
        line = f"line {safe_yaml.line(error, text)}: " if error.problem_mark else ""
        raise _refusal(origin, [f"{line}{safe_yaml.problem(error)}"]) from error
    except (yaml.YAMLError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise _refusal(origin, [f"not YAML: {error}"]) from error


def _plain(value: Any) -> Any:
    """The value as JSON has it; raises ValueError for what JSON does not have."""
    if isinstance(value, dict):
        # null counts as absent, as in Go's decoder
        return {_key(key): _plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} has no place in a manifest")
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise ValueError(f"a value of type {type(value).__name__} has no place in a manifest")


def _key(key: Any) -> str:
    if isinstance(key, bool):
        return str(key).lower()
    if isinstance(key, str | int | float):
        return str(key)
    raise ValueError(f"{key!r} cannot be the name of a field")


def _items(document: Any, origin: Origin) -> list[Json]:
    if not isinstance(document, dict):
        raise _refusal(origin, ["it must be a mapping with apiVersion: v1 and kind: Pod"])
    kind, version = document.get("kind"), document.get("apiVersion")
    if (version, kind) == ("v1", "Pod"):
        return [document]
    if (version, kind) == ("v1", "PodList") and origin.source == "http":
        items = document.get("items") or []
        if isinstance(items, list) and all(isinstance(item, dict) for item in items):
            return items
        raise _refusal(origin, ["items: must be a list of Pods"])
    wanted = "one v1 Pod or one v1 PodList" if origin.source == "http" else "one v1 Pod"
    raise _refusal(origin, [f"it is {version!r} {kind!r}; only {wanted} can be run from here"])


def _static_pod(raw: Json, origin: Origin, now: str) -> Pod:
    meta, spec = dict(raw.get("metadata") or {}), raw.get("spec") or {}
    if not meta.get("name"):
        raise _refusal(origin, ["metadata.name: is required"])
    uid = meta.get("uid") or ""
    if not uid or _OF_THE_API.fullmatch(uid):
        uid = _hash(raw, origin)
    notes = {**(meta.get("annotations") or {}), labels.CONFIG_HASH: uid, labels.CONFIG_SEEN: now}
    meta.update(
        name=f"{meta['name']}-{origin.node_name.lower()}",
        namespace=meta.get("namespace") or "default",
        uid=uid,
        annotations={**notes, labels.CONFIG_SOURCE: origin.source},
    )
    tolerations = [one for one in spec.get("tolerations") or [] if one != _TOLERATION]
    if origin.source == "file":
        tolerations.append(dict(_TOLERATION))
    spec = {**spec, "nodeName": origin.node_name, **({"tolerations": tolerations} if tolerations else {})}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    try:
        complete = defaulted(body)
    except Invalid as error:
        raise _refusal(origin, [error.message]) from error
    return Pod({**complete, "status": {"phase": "Pending", "startTime": now}}, origin.source)


def _hash(raw: Json, origin: Origin) -> str:
    """Of the manifest without defaults: an agent with other defaults must get the same UID for a running pod."""
    stated = {key: value for key, value in raw.items() if key != "status"}
    text = json.dumps([stated, origin.source, origin.place, origin.node_name], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _uid_warning(raw: Json, pod: Pod) -> str:
    """A manifest that was copied from the API has the UID of a pod that may run here: each would end the other."""
    given = (raw.get("metadata") or {}).get("uid") or pod.uid
    return (
        "" if given == pod.uid else f"gets another UID than {given}, which a pod of the API has. Remove metadata.uid."
    )


def _check(pod: Pod, origin: Origin) -> None:
    found = list(validation.problems(pod))
    reference = "" if found else validation.api_reference(pod)
    if reference:
        found.append(f"static pods may not reference {reference}")
    if found:
        raise _refusal(origin, found)


def _refusal(origin: Origin, found: Iterable[str]) -> Invalid:
    return Invalid("; ".join(found), obj=f"manifest {origin.place}", step="read static pods", action=_ACTION)
