"""Protobuf messages as plain values. No I/O."""

from __future__ import annotations

from typing import Any

from nodelib.json_values import Json


class Room:
    """How many entries of lists and maps a message may still have, at any depth: an empty one takes two bytes on the
    wire, and a hundred times as much as a dict.
    """

    def __init__(self, most: int) -> None:
        self._most = self._left = most

    def take(self, count: int) -> None:
        """Raises ValueError when there was not enough left."""
        self._left -= count
        if self._left < 0:
            raise ValueError(f"it has more than {self._most} entries")


def to_plain(message: Any, room: Room | None = None) -> Json:
    """A message as a dict: proto field names, enums by name, 64-bit numbers as int, unset messages left out.

    Raises ValueError for one with more entries than there is room for.
    """
    plain: Json = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.is_repeated:
            plain[field.name] = _repeated(field, value, room)
        elif field.message_type is not None:
            if message.HasField(field.name):
                plain[field.name] = to_plain(value, room)
        else:
            plain[field.name] = _scalar(field, value)
    return plain


def _repeated(field: Any, value: Any, room: Room | None) -> Any:
    if room is not None:
        room.take(len(value))
    nested = field.message_type
    if nested is not None and nested.GetOptions().map_entry:
        of = nested.fields_by_name["value"]
        return {key: to_plain(item, room) if of.message_type else _scalar(of, item) for key, item in value.items()}
    return [to_plain(item, room) if nested is not None else _scalar(field, item) for item in value]


def _scalar(field: Any, value: Any) -> Any:
    if field.enum_type is None:
        return value
    known = field.enum_type.values_by_number.get(value)
    return known.name if known is not None else value
