"""Reads facts/ and answers/."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from nodelib.json_values import Json

_HERE = Path(__file__).parent


class Kind(StrEnum):
    """What becomes of a gate, a field or a flag of upstream's."""

    OBEYED = "obeyed"  # it is there; a gate may still be one that cannot be switched here
    NOT_APPLICABLE = "not applicable"  # there is nothing here that it could change
    ABSENT = "absent"  # it would have an effect, and has none yet


@dataclass(frozen=True, slots=True)
class Answer:
    """`where`: the file (or the setting) that obeys it; `test`: what fails when it is taken out.

    `instead`: why it is not obeyed, or what happens instead, as a line of the log says it; `plan`: when it will be.
    """

    kind: Kind
    where: str = ""
    test: str = ""
    instead: str = ""
    plan: str = ""


@dataclass(frozen=True, slots=True)
class Gate:
    """A feature gate as upstream's release has it. `requires`: the gates that must be on if this one is."""

    name: str
    stage: str
    default: bool
    locked: bool
    requires: tuple[str, ...]


@cache
def gates() -> Mapping[str, Gate]:
    """Every feature gate that upstream's kubelet knows."""
    return {
        one["name"]: Gate(
            one["name"], one["stage"], one["default"], one.get("locked", False), tuple(one.get("requires", ()))
        )
        for one in facts("gates")["gates"]
    }


@cache
def gate_answers() -> Mapping[str, Answer]:
    """Of the gates that a node's programs read."""
    return _answers(_read("answers/gates.json")["gates"])


@cache
def field_answers(program: str) -> Mapping[str, Answer]:
    """Of the fields of the configuration file of "kubelet" or "kube-proxy", by path."""
    return _answers(_read(f"answers/{program}.json")["fields"])


@cache
def flag_answers(program: str) -> Mapping[str, Answer]:
    """Of the flags of "kubelet" or "kube-proxy" that set no field."""
    return _answers(_read(f"answers/{program}.json")["flags"])


def facts(name: str) -> Json:
    """A generated file: "gates", "kubelet", "kube-proxy" or "pod"."""
    return _read(f"facts/{name}.json")


def _answers(given: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Answer]:
    return {name: Answer(Kind(one["answer"]), *map(one.get, _TEXTS, ("",) * 4)) for name, one in given.items()}


_TEXTS = ("where", "test", "instead", "plan")


def _read(path: str) -> Json:
    found: Json = json.loads((_HERE / path).read_text(encoding="utf-8"))
    return found
