"""Reads what `go version -m` prints: the modules that a program was built from. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Module:
    """A Go module in a program, after replacements. `checksum`: its h1: sum of go.sum."""

    path: str
    version: str
    checksum: str = ""


def modules(printed: str) -> tuple[str, list[Module]]:
    """Version of the Go toolchain without `go`, and the modules with a version.

    https://pkg.go.dev/runtime/debug#BuildInfo
    """
    lines = printed.splitlines()
    toolchain = lines[0].rpartition(": go")[2].split()[0] if lines else ""
    found: list[Module] = []
    for line in lines[1:]:
        kind, *words = line.strip().split("\t")
        if kind in ("mod", "dep"):
            found.append(_module(words))
        elif kind == "=>" and found:
            found[-1] = _module(words)
    return toolchain, [one for one in found if one.version.startswith("v")]


def _module(words: list[str]) -> Module:
    return Module(*(*words, "", "", "")[:3])


def in_cache(module: Module) -> str:
    """The module's folder below GOMODCACHE: capital letters are written as ! and the small letter."""
    name = "".join(f"!{one.lower()}" if one.isupper() else one for one in module.path)
    version = "".join(f"!{one.lower()}" if one.isupper() else one for one in module.version)
    return f"{name}@{version}"
