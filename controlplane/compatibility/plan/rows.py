"""Joins upstream's facts with the answers. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from controlplane.compatibility.model import Program, Row
from nodelib.json_values import Json
from nodelib.upstream.answers import Answer

_OF_THE_PROCESS = frozenset({"help", "version"})  # flags that set nothing


def program(
    name: str,
    facts: Json,
    fields: Mapping[str, Answer],
    flags: Mapping[str, Answer],
    sets: Mapping[str, str],
    where: Callable[[str], str | None],
) -> Program:
    """`sets`: by flag, the field that it sets; `where`: the setting that is made from a field or a "--flag"."""

    def answered(found: Answer | None, source: str) -> Answer | None:
        return replace(found, where=found.where or where(source) or "") if found else None

    rows = [
        Row(one["path"], _shown(one.get("default")), answered(fields.get(one["path"]), one["path"]))
        for one in facts["fields"]
    ]
    own = [
        Row(
            one["name"], one["default"], answered(flags.get(one["name"]), f"--{one['name']}"), sets.get(one["name"], "")
        )
        for one in facts["flags"]
        if one["name"] not in _OF_THE_PROCESS
    ]
    return Program(name, tuple(rows), tuple(own))


def gate_rows(facts: Json, answers: Mapping[str, Answer], switched: Collection[str]) -> tuple[Row, ...]:
    """The gates that code of a node's programs reads, and those that are answered although none does."""
    return tuple(
        Row(
            one["name"],
            "on" if one["default"] else "off",
            answers.get(one["name"]),
            stage=one["stage"] + (", locked" if one.get("locked") else ""),
            switch=one["name"] in switched,
        )
        for one in facts["gates"]
        if one["read_by"] or one["name"] in answers
    )


def _shown(default: Any) -> str:
    if default is None:
        return ""
    return default if isinstance(default, str) else json.dumps(default, ensure_ascii=False)
