"""Protobuf messages as plain values. No I/O."""

from __future__ import annotations

from typing import Any

from nodelib.json_values import Json


def to_plain(message: Any) -> Json:
    """A message as a dict: proto field names, enums by name, 64-bit numbers as int, unset messages left out."""
    plain: Json = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.is_repeated:
            plain[field.name] = _repeated(field, value)
        elif field.message_type is not None:
            if message.HasField(field.name):
                plain[field.name] = to_plain(value)
        else:
            plain[field.name] = _scalar(field, value)
    return plain


def _repeated(field: Any, value: Any) -> Any:
    nested = field.message_type
    if nested is not None and nested.GetOptions().map_entry:
        of = nested.fields_by_name["value"]
        return {key: to_plain(item) if of.message_type else _scalar(of, item) for key, item in value.items()}
    return [to_plain(item) if nested is not None else _scalar(field, item) for item in value]


def _scalar(field: Any, value: Any) -> Any:
    if field.enum_type is None:
        return value
    known = field.enum_type.values_by_number.get(value)
    return known.name if known is not None else value
