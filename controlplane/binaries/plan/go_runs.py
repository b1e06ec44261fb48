"""Which binaries one run of Go builds together, with which arguments, and what it names them. Pure."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controlplane.binaries.model import COMPILER, Binary, Kind

_MAJOR = re.compile(r"v[0-9]+")
_REQUIRED = re.compile(r"^(?:\t|require )(\S+) v\S+", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class GoRun:
    """One run of Go: binaries of one module with the same flags. Go compiles once what they share."""

    binaries: tuple[Binary, ...]

    @property
    def module(self) -> str:
        """The folder in which Go runs."""
        return self.binaries[0].module

    @property
    def c(self) -> bool:
        """Whether a C compiler takes part."""
        return self.binaries[0].c

    @property
    def packages(self) -> tuple[str, ...]:
        """What Go is asked for."""
        return tuple(binary.package for binary in self.binaries)

    @property
    def label(self) -> str:
        """The binaries' names for people."""
        return ", ".join(binary.name for binary in self.binaries)


def go_runs(binaries: Iterable[Binary]) -> tuple[GoRun, ...]:
    """The runs that build these binaries, test programs last: they need most of what the others are made of."""
    grouped: dict[tuple[object, ...], list[Binary]] = {}
    for binary in dict.fromkeys(binaries):
        grouped.setdefault((binary.kind, binary.module, binary.ldflags, binary.tags, binary.c), []).append(binary)
    runs = [GoRun(tuple(found)) for found in grouped.values()]
    return tuple(sorted(runs, key=lambda run: run.binaries[0].kind is Kind.TEST))


def go_arguments(run: GoRun, folder: str) -> list[str]:
    """The arguments of `go` that build them into `folder`. `go build` prints the name of what it compiles."""
    one = run.binaries[0]
    # Vetting upstream's tests takes minutes and says nothing that upstream's own CI has not said.
    verb = ["test", "-c", "-vet=off"] if one.kind is Kind.TEST else ["build", "-v"]
    return [*verb, *_flags(one), "-o", f"{folder}/", *run.packages]


def compile_arguments(run: GoRun, packages: Iterable[Mapping[str, Any]], required: Container[str]) -> list[str]:
    """The arguments of `go` that compile only the packages which test programs are made of, [] for other binaries.

    `go test -c` prints no names of packages; this does. `packages` are those of the list. Go takes only packages by
    name whose module is in `required`; the others are compiled with the test. What comes with Go has no module.
    """
    one = run.binaries[0]
    known = [str(each.get("ImportPath")) for each in packages if (each.get("Module") or {}).get("Path") in required]
    # Neither a package as it is in a test ("a [b.test]"), nor the test's own main.
    named = [name for name in known if not name.endswith(("]", ".test"))]
    return ["build", "-v", *_flags(one), *named] if named and one.kind is Kind.TEST else []


def required_modules(go_mod: str) -> frozenset[str]:
    """The paths of the modules that a go.mod requires."""
    return frozenset(_REQUIRED.findall(go_mod))


def list_arguments(run: GoRun) -> list[str]:
    """The arguments of `go` that name every package of the run: one JSON object each, `Stale` if it must be compiled.

    Go fetches their modules for it.
    """
    one = run.binaries[0]
    tests = ["-test"] if one.kind is Kind.TEST else []
    fields = (
        "-json=ImportPath,Dir,GoFiles,EmbedFiles,Module,Stale"  # without EmbedFiles, Go takes half of them for stale
    )
    return ["list", "-deps", *tests, fields, *_flags(one), *run.packages]


def file_name(binary: Binary) -> str:
    """What Go names it: the last part of the package's path that is no major version."""
    parts = [part for part in binary.package.split("/") if not _MAJOR.fullmatch(part)]
    return parts[-1] + (".test" if binary.kind is Kind.TEST else "")


def _flags(binary: Binary) -> Sequence[str]:
    tags = ["-tags", ",".join(binary.tags)] if binary.tags else []
    return [*COMPILER, *tags, "-ldflags", " ".join(binary.ldflags)]
