"""Which metrics an endpoint has: names, types and labels, without the values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from nodelib.json_values import Json

_TYPE = re.compile(r"# TYPE (\S+) (\S+)")
# prometheus_client's own parser calls every counter NAME_total, whether or not it is called so.
_SAMPLE = re.compile(r'([A-Za-z_:][\w:]*)(\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\})? \S+')
_LABEL = re.compile(r'(\w+)="(?:[^"\\]|\\.)*"')
_PARTS = re.compile(r"_(?:bucket|count|sum)$")
_WHOLE = ("histogram", "summary")


@dataclass(frozen=True, slots=True)
class Series:
    """One metric. A histogram and a summary are one, whose `labels` leave out `le` and `quantile`."""

    kind: str
    labels: frozenset[str]


Endpoint = Mapping[str, Series]


def series_of(text: str) -> dict[str, Series]:
    """By name, of those that have a sample."""
    kinds: dict[str, str] = {}
    found: dict[str, Series] = {}
    for line in text.splitlines():
        if named := _TYPE.match(line):
            kinds[named[1]] = named[2]
        elif sample := _SAMPLE.match(line):
            stem = _PARTS.sub("", sample[1])
            name = stem if kinds.get(stem) in _WHOLE else sample[1]
            kind = kinds.get(name, "untyped")
            hidden = {"le", "quantile"} if kind in _WHOLE else set()
            labels = frozenset(_LABEL.findall(sample[2] or "")) - hidden
            found[name] = Series(kind, labels | (found[name].labels if name in found else frozenset()))
    return found


def as_json(endpoint: Endpoint) -> Json:
    return {name: {"kind": one.kind, "labels": sorted(one.labels)} for name, one in sorted(endpoint.items())}


def from_json(listed: Json) -> dict[str, Series]:
    return {name: Series(one["kind"], frozenset(one["labels"])) for name, one in listed.items()}
