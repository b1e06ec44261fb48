"""The labels of pods, namespaces and nodes as they are kept: a dictionary, or packed where there are many. Pure.

Every daemon has those of all pods, and none of them may be left out: a pod would leave the policies that select it. A
dictionary takes 120 bytes for each beside its text, so that a pod with 40,000 labels, which need not even run, has 5 MB
of every node. Looked up in the text a label takes 1 µs instead of 0.1.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, KeysView, Mapping
from typing import TypeVar, overload

from nodelib.json_values import object_or_empty

MOST = 256  # labels in a dictionary
_BLOCK = 16  # labels of which the first one's key is kept beside the text
_END, _NEXT = "\0", "\n"  # of a key, before a label: no label of an API server has one of them
_KEYS = re.compile(f"{_NEXT}([^{_END}]*){_END}")
_T = TypeVar("_T")


class PackedLabels(Mapping[str, str]):
    """Labels in one text, sorted by their keys, and looked up in the block of it where they must be."""

    __slots__ = ("_count", "_firsts", "_starts", "_text")

    def __init__(self, labels: Mapping[str, str]) -> None:
        """Raises ValueError for labels that hold one of the two characters that are between them."""
        keys = list(labels)
        in_order = sorted(keys)
        values = labels.values() if keys == in_order else map(labels.__getitem__, in_order)  # a server sorts them
        keys, lines = in_order, list(map(_END.join, zip(in_order, values, strict=True)))
        blocks = [f"{_NEXT}{_NEXT.join(lines[at : at + _BLOCK])}" for at in range(0, len(lines), _BLOCK)]
        self._text = "".join((*blocks, _NEXT))
        self._count = len(keys)
        if self._text.count(_END) != self._count or self._text.count(_NEXT) != self._count + 1:
            raise ValueError("a label with a control character")
        self._firsts = keys[::_BLOCK]
        self._starts = [0]
        for block in blocks:
            self._starts.append(self._starts[-1] + len(block))

    def __getitem__(self, key: str) -> str:
        at = self._value_at(key)
        if at < 0:
            raise KeyError(key)
        return self._text[at : self._text.index(_NEXT, at)]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._value_at(key) >= 0

    @overload
    def get(self, key: str, /) -> str | None: ...
    @overload
    def get(self, key: str, /, default: str | _T) -> str | _T: ...
    def get(self, key: str, /, default: object = None) -> object:
        """As of any Mapping, without an exception for a key that is not there."""
        at = self._value_at(key)
        return default if at < 0 else self._text[at : self._text.index(_NEXT, at)]

    def __iter__(self) -> Iterator[str]:
        return iter(_KEYS.findall(self._text))

    def __len__(self) -> int:
        return self._count

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PackedLabels):
            return self._text == other._text
        return super().__eq__(other)

    def _value_at(self, key: str) -> int:
        """Where its value begins, -1 for a key that is not there."""
        block = bisect_right(self._firsts, key) - 1
        if block < 0:
            return -1
        at = self._text.find(f"{_NEXT}{key}{_END}", self._starts[block], self._starts[block + 1])
        if at < 0 or _END in key or _NEXT in key:  # a key with one of these would be found where it is no key
            return -1
        return at + len(key) + 2


def kept(value: object) -> Mapping[str, str]:
    """The labels of an object's metadata, in the form in which they take little memory."""
    labels: Mapping[str, str] = object_or_empty(value)
    if len(labels) <= MOST or {*map(type, labels), *map(type, labels.values())} != {str}:
        labels = {str(key): str(text) for key, text in labels.items()}
    if len(labels) <= MOST:
        return labels
    try:
        return PackedLabels(labels)
    except ValueError:
        return labels


def among(keys: KeysView[str], labels: Mapping[str, str]) -> Collection[str]:
    """The keys of labels that are among `keys`: there may be tens of thousands of both."""
    if len(keys) * 8 < len(labels):
        return [key for key in keys if key in labels]
    return keys & labels.keys()
