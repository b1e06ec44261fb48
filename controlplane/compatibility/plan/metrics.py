"""The metrics that Go sources declare: name, kind and labels, read from their text. Pure.

A registry cannot be asked for them: a metric with labels is in no scrape until something of its kind has happened.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nodelib.json_values import Json

_CONSTANT = re.compile(r'^\s*(?:const\s+)?(\w+)\s*(?:string\s*)?=\s*"([^"\n]*)"', re.MULTILINE)
_CALL = re.compile(r"(?:(\w+)\s*:?=\s*)?\b\w+\.New(Counter|Gauge|Histogram|Summary|Desc)(?:Vec|Func)?\(")
_OPTION = r'\b{}:\s*(?:"([^"]*)"|(?:\w+\.)?(\w+))'
_LABELS = re.compile(r"\[\]string\{([^}]*)\}")
_TERM = re.compile(r'"([^"]*)"|(?:\w+\.)?(\w+)')
_FULL_NAME = re.compile(r"\s*\w+\.BuildFQName\(([^)]*)\)")
_FOLDERS = ("cmd/kubelet/", "pkg/kubelet/", "pkg/volume/", "pkg/credentialprovider/")
_NOT_OF_A_NODE = re.compile(r"_test\.go$|_(?:windows|darwin|unsupported)\.go$|/testing/")
_COUNTER = r"\b{},\s*(?:\w+\.)?CounterValue"


@dataclass(frozen=True, slots=True)
class Declared:
    """One metric of upstream's; `package`: the folder whose code declares it."""

    name: str
    kind: str
    labels: tuple[str, ...]
    package: str


def is_read(path: str) -> bool:
    """Whether a file of k8s.io/kubernetes is looked at: code of the kubelet, of its volumes and of credentials."""
    return path.startswith(_FOLDERS) and path.endswith(".go") and not _NOT_OF_A_NODE.search(path)


def declared(sources: Mapping[str, str]) -> list[Declared]:
    """By name; `sources`: text by path in the module. A name that is put together while it runs is left out."""
    packages: dict[str, dict[str, str]] = defaultdict(dict)
    anywhere: dict[str, str] = {}
    for path, text in sorted(sources.items()):
        found = dict(_CONSTANT.findall(text))
        packages[_folder(path)].update(found)
        anywhere = {**found, **anywhere}
    known: dict[str, Declared] = {}
    for path, text in sorted(sources.items()):
        folder = _folder(path)
        for one in _of_a_file(folder, text, {**anywhere, **packages[folder]}):
            known.setdefault(one.name, one)
    return [known[name] for name in sorted(known)]


def metrics_file(version: str, sources: Mapping[str, str]) -> str:
    """The text of facts/metrics.json: a line for each metric, so that a new release shows as few lines."""
    lines = (
        json.dumps({"name": one.name, "kind": one.kind, "labels": list(one.labels), "package": one.package})
        for one in declared(sources)
    )
    return f'{{\n  "kubernetes": {json.dumps(version)},\n  "metrics": [\n    ' + ",\n    ".join(lines) + "\n  ]\n}\n"


def from_facts(facts: Json) -> list[Declared]:
    """What metrics_file() wrote."""
    return [Declared(one["name"], one["kind"], tuple(one["labels"]), one["package"]) for one in facts["metrics"]]


def _of_a_file(folder: str, text: str, constants: Mapping[str, str]) -> Iterator[Declared]:
    for call in _CALL.finditer(text):
        body = _arguments(text, call.end())
        variable, kind = call[1] or "", call[2].lower()
        if kind == "desc":
            name = _described(body, constants)
            kind = "counter" if variable and re.search(_COUNTER.format(variable), text) else "gauge"
        else:
            parts = (_option(one, body, constants) for one in ("Namespace", "Subsystem", "Name"))
            name = "_".join(part for part in parts if part) if _option("Name", body, constants) else ""
        if name:
            yield Declared(name, kind, tuple(sorted(_labels(body, constants))), folder)


def _described(body: str, constants: Mapping[str, str]) -> str:
    """The name of a NewDesc: its first argument."""
    full = _FULL_NAME.match(body)
    terms = full[1].split(",") if full else [body.split(",", 1)[0]]
    values = [_value(one, constants) for one in terms]
    return "_".join(one for one in values if one) if values[-1] else ""


def _option(name: str, body: str, constants: Mapping[str, str]) -> str:
    found = re.search(_OPTION.format(name), body)
    if found is None:
        return ""
    return found[1] if found[1] is not None else constants.get(found[2], "")


def _labels(body: str, constants: Mapping[str, str]) -> list[str]:
    found = _LABELS.search(body)
    return [_value(one, constants) for one in found[1].split(",") if one.strip()] if found else []


def _value(term: str, constants: Mapping[str, str]) -> str:
    """A literal, or what a constant stands for; "" for anything else."""
    found = _TERM.fullmatch(term.strip())
    if found is None:
        return ""
    return found[1] if found[1] is not None else constants.get(found[2], "")


def _arguments(text: str, start: int) -> str:
    """What is between the parentheses of a call; a parenthesis in a help text does not count."""
    depth, quoted, at = 1, False, start
    while at < len(text) and depth:
        letter = text[at]
        if letter == '"' and text[at - 1] != "\\":
            quoted = not quoted
        elif not quoted and letter in "()":
            depth += 1 if letter == "(" else -1
        at += 1
    return text[start : at - 1]


def _folder(path: str) -> str:
    return path.rpartition("/")[0]
