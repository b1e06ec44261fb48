"""A Pod in protobuf, as upstream's v1.Pod.Marshal() writes it, from its JSON (k8s.io/api core/v1, generated.proto).

The messages come from facts/pod.json. Fields that these messages do not have are left out: those of a newer API server.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from google.protobuf.message import EncodeError

from nodelib.errors import Invalid
from nodelib.json_values import Json
from nodelib.kube.times import parse_rfc3339
from nodelib.plugin_apis.wire import Api
from nodelib.upstream.answers import facts

_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


@dataclass(frozen=True, slots=True)
class _Field:
    """`inside`: the field that holds it in protobuf, "" for none; `message`: its type, "" for a plain one."""

    name: str
    inside: str
    message: str
    is_map: bool
    is_list: bool


class PodEncoding:
    """Made once: building the messages takes some milliseconds."""

    def __init__(self, described: Json) -> None:
        self._api = Api("k8s.io.api.core.v1", "\n".join(described["messages"]), syntax="proto2")
        inline = frozenset(described["inline"])
        own = {name: _fields(kind.DESCRIPTOR) for name, kind in self._api.messages.items()}
        self._fields = {name: _with_inline(name, fields, own, inline) for name, fields in own.items()}

    def encode(self, pod: Json) -> bytes:
        """Raises Invalid for a value of the wrong type, which names the pod."""
        try:
            return bytes(self._api.messages["Pod"](**self._values("Pod", pod)).SerializeToString())
        except (TypeError, ValueError, AttributeError, EncodeError) as error:
            meta = pod.get("metadata") or {}
            raise Invalid(
                f"{type(error).__name__}: {error}",
                obj=f"pod {meta.get('namespace')}/{meta.get('name')}",
                step="encode in protobuf",
                action="Correct the field; `kubectl explain pod` has its type.",
            ) from error

    def decode(self, data: bytes) -> Any:
        """The protobuf message. Raises DecodeError."""
        return self._api.messages["Pod"].FromString(data)

    def _values(self, message: str, given: Mapping[str, Any]) -> Json:
        values: Json = {}
        for key, value in given.items():
            field = self._fields[message].get(key)
            if field is not None and value is not None:
                holder = values.setdefault(field.inside, {}) if field.inside else values
                holder[field.name] = self._value(field, value)
        return values

    def _value(self, field: _Field, value: Any) -> Any:
        if not field.message:
            return value
        if field.is_map:
            return {key: self._message(field.message, one) for key, one in value.items()}
        if field.is_list:
            return [self._message(field.message, one) for one in value]
        return self._message(field.message, value)

    def _message(self, message: str, value: Any) -> Any:
        by_hand = _BY_HAND.get(message)
        fields = by_hand(value) if by_hand is not None else self._values(message, value)
        return self._api.messages[message](**fields)


@cache
def pod_encoding() -> PodEncoding:
    """That of the Kubernetes version that this tree is built from."""
    return PodEncoding(facts("pod"))


def _quantity(value: Any) -> Json:
    return {"string": str(value)}


def _time(value: Any) -> Json:
    parse_rfc3339(value)  # it refuses what datetime would guess
    exact = datetime.fromisoformat(value.upper()) - _EPOCH
    return {"seconds": exact.days * 86400 + exact.seconds, "nanos": exact.microseconds * 1000}


def _int_or_string(value: Any) -> Json:
    if isinstance(value, str):
        return {"type": 1, "intVal": 0, "strVal": value}
    return {"type": 0, "intVal": value, "strVal": ""}


def _fields_v1(value: Any) -> Json:
    return {"Raw": json.dumps(value, separators=(",", ":")).encode()}


_BY_HAND: Mapping[str, Callable[[Any], Json]] = {
    "Quantity": _quantity,
    "Time": _time,
    "IntOrString": _int_or_string,
    "FieldsV1": _fields_v1,
}


def _fields(descriptor: Any) -> dict[str, _Field]:
    return {field.name: _field(field) for field in descriptor.fields}


def _field(field: Any) -> _Field:
    kind = field.message_type
    is_map = kind is not None and kind.GetOptions().map_entry
    if is_map:
        kind = kind.fields_by_name["value"].message_type
    return _Field(field.name, "", kind.name if kind is not None else "", is_map, field.is_repeated and not is_map)


def _with_inline(
    message: str, fields: Mapping[str, _Field], all_fields: Mapping[str, Mapping[str, _Field]], inline: frozenset[str]
) -> dict[str, _Field]:
    """By key in JSON: the fields of an inline message stand beside the others there."""
    found: dict[str, _Field] = {}
    for field in fields.values():
        if f"{message}.{field.name}" not in inline:
            found[field.name] = field
            continue
        for one in all_fields[field.message].values():
            found[one.name] = _Field(one.name, field.name, one.message, one.is_map, one.is_list)
    return found
