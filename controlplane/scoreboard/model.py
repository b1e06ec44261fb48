"""Specs of upstream's suites, the parts they are run in, and what came of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

MAKERS = ("nodewright", "upstream")
Verdict = Literal["passed", "failed", "skipped"]

_TAG = re.compile(r"\[([^\[\]]+)\]")


class Program(StrEnum):
    """The two suites, by the names of their programs."""

    E2E = "e2e.test"
    NODE = "e2e_node.test"


@dataclass(frozen=True, slots=True)
class Spec:
    """One test, by the text that --focus matches. All labels that matter are in it, in brackets."""

    program: Program
    name: str

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(_TAG.findall(self.name))

    @property
    def sig(self) -> str:
        return next((tag for tag in self.tags if tag.startswith("sig-")), "no SIG")

    @property
    def feature(self) -> str:
        """What the table counts it as: its feature, feature gate or driver, or the kind of test."""
        for kind in ("Feature:", "FeatureGate:", "Driver: "):
            found = [tag for tag in self.tags if tag.startswith(kind) and tag != "Feature:OffByDefault"]
            if found:
                return found[0]
        return next((tag for tag in ("Conformance", "NodeConformance") if tag in self.tags), "other")


@dataclass(frozen=True, slots=True)
class Match:
    """Specs of `program` (any, if None) that have one of the tags (shell patterns), or whose name has `text`.

    `text` is a regular expression. With neither, all of them.
    """

    tags: tuple[str, ...] = ()
    text: str = ""
    program: Program | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """Specs that cannot run here, and why; on machines with the ability `unless` they can."""

    reason: str
    match: Match
    unless: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Specs that run on the same kind of cluster, or of node. `options` are those of `up`.

    A part of it may take `minutes` on each side; a spec takes about `seconds` of them, until some of the group have
    run. `only_ours`: why upstream's does not run it, "" if both do. `alone`: it needs the machine for itself.
    """

    name: str
    what: str
    match: Match
    procs: int = 8  # at most; ginkgo runs specs marked as serial after the others and alone, also with several
    minutes: int = 60
    seconds: float = 8.0
    options: Mapping[str, Any] = field(default_factory=dict)
    gates: Mapping[str, bool] = field(default_factory=dict)
    api_server: Mapping[str, str] = field(default_factory=dict)
    controller_manager: Mapping[str, str] = field(default_factory=dict)
    setup: str = "with-api"  # of the node suite
    only_ours: str = ""
    alone: bool = False

    @property
    def makers(self) -> tuple[str, ...]:
        return MAKERS[:1] if self.only_ours else MAKERS


@dataclass(frozen=True, slots=True)
class Part:
    """Some specs of a group: what is run at once, on clusters of its own."""

    name: str
    group: Group
    specs: tuple[Spec, ...]

    @property
    def conformance(self) -> bool:
        return all("Conformance" in spec.tags for spec in self.specs)


@dataclass(frozen=True, slots=True)
class Step:
    """Specs of a part that are still to be run with one maker; `second`: those that failed, alone."""

    part: Part
    maker: str
    second: bool = False

    @property
    def beside(self) -> bool:
        """Whether others of the kind may run meanwhile: each has a node of its own, and no cluster."""
        return self.part.specs[0].program is Program.NODE and not self.part.group.alone and not self.second


@dataclass(frozen=True, slots=True)
class Partition:
    """Where every spec is: in a part, or with the rule that keeps it out."""

    parts: tuple[Part, ...]
    kept_out: tuple[tuple[Rule, tuple[Spec, ...]], ...]

    @property
    def specs(self) -> tuple[Spec, ...]:
        runnable = [spec for part in self.parts for spec in part.specs]
        return tuple(sorted([*runnable, *(spec for _, specs in self.kept_out for spec in specs)], key=str))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one spec. A skipped one looked at the cluster and found that it cannot run there.

    `second`: what came of a failed one when it was run again, alone.
    """

    verdict: Verdict
    seconds: float = 0.0
    reason: str = ""
    second: Outcome | None = None

    @property
    def flaky(self) -> bool:
        return self.verdict == "failed" and self.second is not None and self.second.verdict == "passed"

    @property
    def final(self) -> Verdict:
        """As it is counted."""
        return "passed" if self.flaky else self.verdict

    @property
    def text(self) -> str:
        return "flaky: passed at 2nd try" if self.flaky else self.verdict

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Outcome:
        """Raises TypeError for what is none."""
        second = data.get("second")
        return cls(**{**data, "second": None if second is None else cls.from_json(second)})


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a part with one maker's kubelet and proxy.

    `missed`: specs that it did not reach, which have no outcome. `tried`: how often those that failed were run.
    `problem`: why the part did not run, or not to its end.
    """

    part: str
    maker: str
    program: Program
    kubernetes: str
    commit: str
    date: str
    machine: str
    seconds: float
    outcomes: Mapping[str, Outcome]
    missed: tuple[str, ...] = ()
    tried: int = 1
    problem: str = ""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Run:
        """Raises KeyError, TypeError or ValueError for what is no run."""
        outcomes = {name: Outcome.from_json(one) for name, one in data["outcomes"].items()}
        changed = {"outcomes": outcomes, "program": Program(data["program"]), "missed": tuple(data["missed"])}
        return cls(**{**data, **changed})


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine of a run: a line for people, and what it can do that some specs need."""

    text: str
    abilities: frozenset[str] = frozenset()
