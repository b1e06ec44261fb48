"""YAML that others wrote: plain values, or an error that says where and why, at a bounded cost.

libyaml's parser does the work. Its composer recurses on the C stack (200,000 opening brackets end the process), so the
events are counted and their depth is limited before anything is made of them. Values are then made here and not by
PyYAML's constructor, so that aliases and merge keys cost what they expand to.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from nodelib import files

_TAG = "tag:yaml.org,2002:"
_MERGE = f"{_TAG}merge"
_STRINGS = frozenset(f"{_TAG}{kind}" for kind in ("str", "merge", "value"))  # "<<" and "=" where no key is
_PLAIN = frozenset(f"{_TAG}{kind}" for kind in ("null", "bool", "int", "float", "timestamp"))
_LONGEST_NUMBER = 200  # characters of what looks like a number or a time
_OPENING = (yaml.SequenceStartEvent, yaml.MappingStartEvent)
_CLOSING = (yaml.SequenceEndEvent, yaml.MappingEndEvent)
Loader = type[yaml.CSafeLoader]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a document may cost. `size` in characters or bytes; `values` with all aliases followed; `depth` of nesting.

    `unique_keys`: a key that is given twice is refused.
    """

    size: int = 1 << 20
    values: int = 50_000
    depth: int = 64
    unique_keys: bool = False


class RefusedYaml(yaml.MarkedYAMLError):
    """The text exceeds a limit, or holds something other than plain values (a tag of Python, a mapping as a key)."""


def problem(error: yaml.MarkedYAMLError) -> str:
    """What is wrong, without the place."""
    return str(error.problem) if isinstance(error, RefusedYaml) else f"not YAML: {error.problem or error.context}"


def line(error: yaml.MarkedYAMLError, text: str) -> int:
    """The line of an error, from 1; 0 if it has none. libyaml finds the end of a text one line too late."""
    return min(error.problem_mark.line + 1, max(1, len(text.splitlines()))) if error.problem_mark else 0


def load(text: str | bytes, limits: Limits | None = None, loader: Loader = yaml.CSafeLoader) -> Any:
    """The only document of a text, None for an empty one. Raises yaml.YAMLError for anything else."""
    documents = load_all(text, limits, loader)
    if len(documents) > 1:
        raise RefusedYaml(problem="it has more than one document")
    return documents[0] if documents else None


def load_all(text: str | bytes, limits: Limits | None = None, loader: Loader = yaml.CSafeLoader) -> list[Any]:
    """All documents of a text as plain values. Raises yaml.YAMLError."""
    limits = limits or Limits()
    builder = _Builder(limits)
    return [builder.value(node, 0) for node in compose_all(text, limits, loader)]


def load_file(path: str, limits: Limits | None = None) -> Any:
    """The only document of a file. Raises OSError, UnicodeDecodeError, yaml.YAMLError."""
    return load(read(path, limits), limits)


def read(path: str, limits: Limits | None = None) -> str:
    """The text of a file, not more of it than its limit allows. Raises OSError, UnicodeDecodeError, yaml.YAMLError."""
    size = (limits or Limits()).size
    data = files.bytes_of(path, size + 1)
    _check_size(data, size)
    return data.decode("utf-8")


def compose_all(text: str | bytes, limits: Limits, loader: Loader = yaml.CSafeLoader) -> Iterator[yaml.Node]:
    """The nodes of a text that is within its limits; aliases are not followed. Raises yaml.YAMLError."""
    _check_size(text, limits.size)
    with _as_refusals():
        _check_shape(text, limits, loader)
        yield from yaml.compose_all(text, Loader=loader)


def _check_size(text: str | bytes, size: int) -> None:
    if len(text) > size:
        raise RefusedYaml(problem=f"it is larger than {size} bytes")


def _check_shape(text: str | bytes, limits: Limits, loader: Loader) -> None:
    depth = 0
    for count, event in enumerate(yaml.parse(text, Loader=loader), 1):
        if isinstance(event, _OPENING):
            depth += 1
        elif isinstance(event, _CLOSING):
            depth -= 1
        if depth > limits.depth or count > 2 * limits.values:
            raise _too_much(event.start_mark)


def _too_much(mark: Any) -> RefusedYaml:
    return RefusedYaml(
        problem="it is too large or too deep, perhaps once its aliases are followed",
        problem_mark=mark,
    )


@contextlib.contextmanager
def _as_refusals() -> Iterator[None]:
    """Turns what PyYAML lets through into its own errors."""
    try:
        yield
    except (ValueError, TypeError, ArithmeticError, AttributeError, RecursionError) as error:
        raise RefusedYaml(problem=str(error)) from error


class _Builder:
    def __init__(self, limits: Limits) -> None:
        self._limits, self._left = limits, limits.values
        self._scalars = yaml.constructor.SafeConstructor()

    def value(self, node: yaml.Node, depth: int) -> Any:
        self._left -= 1
        if self._left < 0 or depth > self._limits.depth:
            raise _too_much(node.start_mark)
        if isinstance(node, yaml.MappingNode):
            self._check_tag(node, "map")
            return self._mapping(node, depth)
        if isinstance(node, yaml.SequenceNode):
            self._check_tag(node, "seq")
            return [self.value(one, depth + 1) for one in node.value]
        return self._scalar(node)

    def _mapping(self, node: yaml.MappingNode, depth: int) -> dict[Any, Any]:
        own: dict[Any, Any] = {}
        merged: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                for part in self._parts(value_node, depth):
                    merged = {**part, **merged}
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                raise RefusedYaml(problem="a key must be a plain value", problem_mark=key_node.start_mark)
            key = self.value(key_node, depth + 1)
            if key in own and self._limits.unique_keys:
                raise RefusedYaml(problem=f"field {key!r} is given twice", problem_mark=key_node.start_mark)
            own[key] = self.value(value_node, depth + 1)
        return {**merged, **own} if merged else own

    def _parts(self, node: yaml.Node, depth: int) -> Iterator[dict[Any, Any]]:
        """The mappings that a merge key names, each of which is made, and paid for, anew."""
        for one in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            if not isinstance(one, yaml.MappingNode):
                raise RefusedYaml(problem="a merge key must name mappings", problem_mark=node.start_mark)
            part = self.value(one, depth + 1)
            self._left -= len(part)
            yield part

    def _scalar(self, node: yaml.Node) -> Any:
        if node.tag in _STRINGS:
            return node.value
        if node.tag not in _PLAIN:
            raise RefusedYaml(problem=f"a value of type {node.tag} is not plain", problem_mark=node.start_mark)
        if not isinstance(node.value, str):
            raise RefusedYaml(problem="a value must be plain text", problem_mark=node.start_mark)
        if len(node.value) > _LONGEST_NUMBER:
            raise RefusedYaml(problem=f"a number of {len(node.value)} characters", problem_mark=node.start_mark)
        try:
            return self._scalars.construct_object(node)
        except (ValueError, TypeError, ArithmeticError, AttributeError, LookupError) as error:
            raise RefusedYaml(problem=f"{node.value!r}: {error}", problem_mark=node.start_mark) from error

    def _check_tag(self, node: yaml.Node, kind: str) -> None:
        if node.tag != f"{_TAG}{kind}":
            raise RefusedYaml(problem=f"a value of type {node.tag} is not plain", problem_mark=node.start_mark)
