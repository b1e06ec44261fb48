"""Metrics as values, and as Prometheus text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

Labels = dict[str, str]
Sample = tuple[Labels, float, int | None]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: samples are (labels, value, milliseconds since the epoch or None)."""

    name: str
    kind: str
    help: str
    samples: list[Sample]


def render(families: Iterable[Family]) -> bytes:
    """Prometheus text format 0.0.4, sorted by name, without families that have no samples."""
    lines: list[str] = []
    for family in sorted(families, key=lambda entry: entry.name):
        if not family.samples:
            continue
        lines.append(f"# HELP {family.name} {_escaped(family.help, quotes=False)}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        for labels, value, at in family.samples:
            inner = ",".join(f'{key}="{_escaped(text)}"' for key, text in sorted(labels.items()))
            name = f"{family.name}{{{inner}}}" if inner else family.name
            lines.append(f"{name} {_number(value)}" if at is None else f"{name} {_number(value)} {at}")
    return ("\n".join(lines) + "\n").encode()


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _escaped(text: str, *, quotes: bool = True) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n")
    return escaped.replace('"', '\\"') if quotes else escaped
