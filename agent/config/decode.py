"""Decodes a KubeletConfiguration file into checked values; every error names file, line and field.

As strict as upstream's codec: an unknown field, a field that is given twice or a value of the wrong kind refuses the
file (pkg/kubelet/kubeletconfig/util/codec).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from agent.config.schema import API_VERSION, FIELDS, KIND
from agent.config.values import BadValue
from nodelib import safe_yaml
from nodelib.errors import Invalid

_MAX_VALUES = 50_000  # aliases can make a small file explode
_MAX_DEPTH = 32
_MAX_SIZE = 1 << 20
_SECTIONS = frozenset(".".join(path.split(".")[:depth]) for path in FIELDS for depth in range(1, path.count(".") + 1))
_IMPLICIT = "tag:yaml.org,2002:"


@dataclass(frozen=True, slots=True)
class Document:
    """One decoded file: nested values, and the line (from 1) of each field path."""

    file: str
    data: dict[str, Any]
    lines: Mapping[str, int]

    def error(self, path: str, problem: str) -> Invalid:
        """The error about one field of this file."""
        return _invalid(self.file, self.lines.get(path, 0), path, problem)


def _invalid(file: str, line: int, path: str, problem: str) -> Invalid:
    place = f"{file}, line {line}" if line else file
    return Invalid(
        f"{path}: {problem}" if path else problem,
        obj=place,
        step="read KubeletConfiguration",
        action="Correct the file and start the agent again; nothing was changed.",
    )


def decode(text: str, file: str) -> Document:
    """Parse and check one file. Raises Invalid with file, line and field."""
    if len(text) > _MAX_SIZE:
        raise _invalid(file, 0, "", f"the file is larger than {_MAX_SIZE} bytes")
    builder = _Builder(file)
    try:
        nodes = list(safe_yaml.compose_all(text, safe_yaml.Limits(_MAX_SIZE, _MAX_VALUES, _MAX_DEPTH)))
        if len(nodes) > 1:
            raise safe_yaml.RefusedYaml(problem="it has more than one document", problem_mark=nodes[1].start_mark)
        node = nodes[0] if nodes else None
    except yaml.MarkedYAMLError as error:
        line = safe_yaml.line(error, text)
        raise _invalid(file, line, "", safe_yaml.problem(error)) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _invalid(file, 0, "", f"not YAML: {error}") from error
    data = builder.value(node, "", 0) if node is not None else None
    if not isinstance(data, dict):
        raise _invalid(file, 1, "", f"must be a mapping with apiVersion: {API_VERSION} and kind: {KIND}")
    document = Document(file, data, builder.lines)
    _check_type(document)
    flatten(document)
    return document


def flatten(document: Document) -> dict[str, Any]:
    """Field path -> checked value, of the fields that are set. Raises Invalid."""
    found: dict[str, Any] = {}
    try:
        _walk(document.data, "", found)
    except BadValue as error:
        raise document.error(error.path, error.problem) from error
    return found


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of flatten, with apiVersion and kind: what /configz shows."""
    tree: dict[str, Any] = {"apiVersion": API_VERSION, "kind": KIND}
    for path, value in flat.items():
        if value is None:
            continue
        *sections, leaf = path.split(".")
        place = tree
        for section in sections:
            place = place.setdefault(section, {})
        place[leaf] = value
    return tree


def _check_type(document: Document) -> None:
    for name, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        found = document.data.get(name)
        if found != wanted:
            raise document.error(name, f"must be {wanted}, not {found!r}" if found else f"is missing; write {wanted}")


def _walk(tree: Mapping[str, Any], prefix: str, found: dict[str, Any]) -> None:
    for key, value in tree.items():
        path = f"{prefix}{key}"
        if path in ("apiVersion", "kind"):
            continue
        if path in FIELDS:
            if value is not None:
                found[path] = FIELDS[path].check(value, path)
        elif path in _SECTIONS:
            if value is None:
                continue
            if not isinstance(value, dict):
                raise BadValue(path, "must be a mapping")
            _walk(value, f"{path}.", found)
        else:
            raise BadValue(path, f"unknown field{_suggestion(path)}")


def _suggestion(path: str) -> str:
    lower = {known.lower(): known for known in [*FIELDS, *_SECTIONS]}
    near = difflib.get_close_matches(path.lower(), list(lower), n=1, cutoff=0.75)
    return f"; did you mean {lower[near[0]]}?" if near else ""


class _Builder:
    """Makes values of YAML nodes, notes the line of every path, and limits what a hostile file can cost."""

    def __init__(self, file: str) -> None:
        self.lines: dict[str, int] = {}
        self._file = file
        self._count = 0

    def value(self, node: yaml.Node, path: str, depth: int) -> Any:
        line = node.start_mark.line + 1
        self.lines.setdefault(path, line)
        self._count += 1
        if self._count > _MAX_VALUES or depth > _MAX_DEPTH:
            raise _invalid(self._file, line, path, "the file is nested too deeply or has too many values")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, depth)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(entry, f"{path}[{index}]", depth + 1) for index, entry in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: str, depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise _invalid(self._file, line, path, "a key must be a plain string")
            key = key_node.value
            inner = f"{path}.{key}" if path else key
            if key in result:
                raise _invalid(self._file, line, inner, "is given twice")
            self.lines[inner] = line
            result[key] = self.value(value_node, inner, depth + 1)
        return result

    def _scalar(self, node: yaml.Node, path: str) -> Any:
        text, tag = str(node.value), node.tag
        try:
            if tag == f"{_IMPLICIT}null":
                return None
            if tag == f"{_IMPLICIT}bool":
                return text.lower() in ("true", "yes", "on")
            if tag == f"{_IMPLICIT}int" and ":" not in text:
                return _integer(text)
            if tag == f"{_IMPLICIT}float" and ":" not in text:
                return _float(text)
        except ValueError as error:
            raise _invalid(self._file, node.start_mark.line + 1, path, f"{text!r} is not a number: {error}") from error
        return text


def _integer(text: str) -> int:
    plain = text.replace("_", "")
    digits = plain.lstrip("+-")
    if len(digits) > 1 and digits[0] == "0" and digits.isdigit():
        return int(plain, 8)
    return int(plain, 0)


def _float(text: str) -> float:
    special = text.lstrip("+-").lower()
    if special in (".inf", ".nan"):
        raise ValueError("JSON has no such number")
    return float(text.replace("_", ""))
