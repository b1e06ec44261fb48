"""The kinds of fields of which a document is declared: each checks a value and describes itself as JSON Schema."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from nodelib.json_values import Json
from nodelib.text import one_line

Path = tuple[str | int, ...]
_SHOWN = 80  # bytes of a wrong value that an error repeats


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong in a document, where, and what to do about it."""

    path: Path
    text: str
    action: str


class Kind(Protocol):
    """What a value may be."""

    def check(self, value: Any, path: Path) -> list[Problem]:
        """Everything that is wrong with the value, nothing if it is right."""

    def schema(self) -> Json:
        """The same as JSON Schema (draft 07)."""


@dataclass(frozen=True, slots=True)
class Text:
    """A text: one of `choices`, or one without a `problem` (which returns "" for a good one)."""

    what: str = "text"
    choices: tuple[str, ...] = ()
    problem: Callable[[str], str] | None = None

    def check(self, value: Any, path: Path) -> list[Problem]:
        if not isinstance(value, str) and self.choices:
            return [Problem(path, f"{shown(value)} is none of its values", f"Choose from: {', '.join(self.choices)}.")]
        if not isinstance(value, str):
            hint = f"Put it in quotes: {str(value).lower()!r}." if isinstance(value, bool | int | float) else ""
            return [Problem(path, f"must be {self.what}, not {shown(value)}", hint or f"Give {self.what}.")]
        if self.choices and value not in self.choices:
            return [Problem(path, f"{shown(value)} is none of its values", f"Choose from: {', '.join(self.choices)}.")]
        reason = self.problem(value) if self.problem else ""
        return [Problem(path, f"{shown(value)} {reason}", f"Give {self.what}.")] if reason else []

    def schema(self) -> Json:
        return {"type": "string", **({"enum": list(self.choices)} if self.choices else {})}


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number."""

    low: int
    high: int

    def check(self, value: Any, path: Path) -> list[Problem]:
        if isinstance(value, int) and not isinstance(value, bool) and self.low <= value <= self.high:
            return []
        said = f"must be a whole number from {self.low} to {self.high}, not {shown(value)}"
        return [Problem(path, said, "Give such a number, without quotes.")]

    def schema(self) -> Json:
        return {"type": "integer", "minimum": self.low, "maximum": self.high}


@dataclass(frozen=True, slots=True)
class Switch:
    """true or false."""

    def check(self, value: Any, path: Path) -> list[Problem]:
        if isinstance(value, bool):
            return []
        return [Problem(path, f"must be true or false, not {shown(value)}", "Write true or false, without quotes.")]

    def schema(self) -> Json:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Either:
    """One of two kinds; which one is meant is seen from the type of the value."""

    first: Kind
    second: Kind
    is_first: Callable[[Any], bool]

    def check(self, value: Any, path: Path) -> list[Problem]:
        return (self.first if self.is_first(value) else self.second).check(value, path)

    def schema(self) -> Json:
        return {"oneOf": [self.first.schema(), self.second.schema()]}


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list; `unique` names fields whose values together are given only once."""

    item: Kind
    unique: tuple[str, ...] = ()
    least: int = 0
    most: int = 1000

    def check(self, value: Any, path: Path) -> list[Problem]:
        if not isinstance(value, list):
            return [Problem(path, f"must be a list, not {shown(value)}", "Begin each entry with `- `.")]
        if not self.least <= len(value) <= self.most:
            return [Problem(path, f"has {len(value)} entries", f"Give {self.least} to {self.most}.")]
        found = [problem for number, one in enumerate(value) for problem in self.item.check(one, (*path, number))]
        return found or self._repeated(value, path)

    def _repeated(self, value: list[Any], path: Path) -> list[Problem]:
        seen: dict[tuple[Any, ...], int] = {}
        found = []
        for number, one in enumerate(value):
            key = tuple(one.get(name) for name in self.unique) if self.unique else (str(one),)
            if key in seen:
                words = ", ".join(f"{name} {shown(part)}" for name, part in zip(self.unique, key, strict=False) if part)
                said = f"{words or shown(one)} is there already, as entry {seen[key]}"
                where: Path = (*path, number, self.unique[0]) if self.unique else (*path, number)
                found.append(Problem(where, said, "Remove one of the two, or give another value."))
            seen.setdefault(key, number)
        return found

    def schema(self) -> Json:
        return {"type": "array", "items": self.item.schema(), **({"minItems": self.least} if self.least else {})}


@dataclass(frozen=True, slots=True)
class Names:
    """A mapping from names of the user's choice. `problem` says what is wrong with a name, "" if nothing."""

    value: Kind
    what: str
    problem: Callable[[str], str]

    def check(self, value: Any, path: Path) -> list[Problem]:
        if not isinstance(value, dict):
            return [Problem(path, f"must be a mapping, not {shown(value)}", f"Write one `{self.what}: value` a line.")]
        found = []
        for name, one in value.items():
            if not isinstance(name, str):
                found.append(Problem((*path, str(name)), f"{shown(name)} must be text", "Put it in quotes."))
            elif reason := self.problem(name):
                found.append(Problem((*path, name), f"{shown(name)} {reason}", f"Give the name of a {self.what}."))
            else:
                found += self.value.check(one, (*path, name))
        return found

    def schema(self) -> Json:
        return {"type": "object", "additionalProperties": self.value.schema()}


@dataclass(frozen=True, slots=True)
class Free:
    """A mapping that another program defines; `problems` yields (path below it, text) of what is wrong."""

    problems: Callable[[Mapping[str, Any]], list[tuple[Path, str]]]

    def check(self, value: Any, path: Path) -> list[Problem]:
        if not isinstance(value, dict):
            return [Problem(path, f"must be a mapping, not {shown(value)}", "Write one `field: value` a line.")]
        return [
            Problem((*path, *below), text, "Correct this field, or leave it out.")
            for below, text in self.problems(value)
        ]

    def schema(self) -> Json:
        return {"type": "object"}


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a table: its kind, what it is for, whether it must be there."""

    kind: Kind
    about: str
    required: bool = False


def _only(kind: Kind) -> str:
    """The value of a field that has only one, after a space; "" for other fields."""
    return f" {kind.choices[0]}" if isinstance(kind, Text) and len(kind.choices) == 1 else ""


@dataclass(frozen=True, slots=True)
class Table:
    """A mapping with known fields. `also` looks at fields together once each by itself is right."""

    fields: Mapping[str, Field]
    also: Callable[[Mapping[str, Any], Path], list[Problem]] = field(default=lambda value, path: [])

    def check(self, value: Any, path: Path) -> list[Problem]:
        if not isinstance(value, dict):
            known = ", ".join(self.fields)
            return [Problem(path, f"must be a mapping, not {shown(value)}", f"Its fields are: {known}.")]
        found = [self._unknown(str(name), path) for name in value if name not in self.fields]
        for name, one in self.fields.items():
            if value.get(name) is not None:
                found += one.kind.check(value[name], (*path, name))
            elif one.required:
                found.append(Problem((*path, name), "is missing", f"Add `{name}:{_only(one.kind)}` ({one.about})"))
        return found or self.also(value, path)

    def _unknown(self, name: str, path: Path) -> Problem:
        near = difflib.get_close_matches(name.lower(), [known.lower() for known in self.fields], n=1, cutoff=0.7)
        meant = [known for known in self.fields if known.lower() in near]
        action = f"Write `{meant[0]}`." if meant else f"Remove it. Known here: {', '.join(self.fields)}."
        return Problem((*path, name), "unknown field", action)

    def schema(self) -> Json:
        properties = {name: {"description": one.about, **one.kind.schema()} for name, one in self.fields.items()}
        required = [name for name, one in self.fields.items() if one.required]
        return {
            "type": "object",
            "additionalProperties": False,
            "properties": properties,
            **({"required": required} if required else {}),
        }


def shown(value: Any) -> str:
    """A value in an error: short, and without control characters."""
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    return one_line(repr(value) if isinstance(value, str) else str(value), _SHOWN)


def matches(pattern: str, reason: str, most: int = 253) -> Callable[[str], str]:
    """The problem of a text that is not as the pattern says."""
    compiled = re.compile(pattern, re.ASCII)
    return lambda text: "" if len(text) <= most and compiled.fullmatch(text) else reason


def path_text(path: Path) -> str:
    """nodes[1].labels.gpu, as an error names a place."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return one_line(text, 200)
