"""Where a setting comes from: a field of KubeletConfiguration, a flag that has no field, or a feature gate.

A settings dataclass says it in the annotation of each field, and agent/config/bind.py fills the dataclass:

    port: Annotated[int, config("port")]
    cert_dir: Annotated[str, flag("cert-dir")]
    stalls: Annotated[bool, gate("KubeletPSI")]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Binding:
    """Keys of values (a field's path, a --flag, a gate's key), and the function from their values to the setting."""

    sources: tuple[str, ...]
    convert: Callable[..., Any]

    def value(self, values: Mapping[str, Any]) -> Any:
        """The setting. `values`: of a complete, checked configuration, by field path or --flag."""
        return self.convert(*(values[source] for source in self.sources))


def config(*paths: str, convert: Callable[..., Any] = lambda value: value) -> Binding:
    """A setting made from these fields, by their paths, such as "authentication.webhook.enabled"."""
    return Binding(paths, convert)


def flag(name: str) -> Binding:
    """A setting that is the value of this flag."""
    return Binding((flag_source(name),), lambda value: value)


def gate(name: str) -> Binding:
    """A setting that says whether this feature gate is on."""
    return Binding((gate_source(name),), lambda value: value)


def gate_source(name: str) -> str:
    """A feature gate's key among the values: every gate that upstream knows is there, given or not."""
    return f"featureGates.{name}"


def flag_source(name: str) -> str:
    """A flag's key among the values; no field path starts with dashes."""
    return f"--{name}"
