"""Which e2e tests belong to a tier, the command that runs them, and what their reports say. Pure."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from controlplane.cluster.advice import line as our_line
from controlplane.cluster.model import DEFAULT_NAME
from nodelib.errors import Invalid

Outcome = Literal["passed", "failed", "skipped"]
_SIG = re.compile(r"\[(sig-[a-z-]+)\]")
# Ginkgo's reports append the labels to the name, and for which versions of a component the test is.
_LABELS = re.compile(r"(?: \[[^\[\]]*sig-[^\[\]]*\])?(?: \[\w+: \[[^\[\]]*\](?:, \w+: \[[^\[\]]*\])*\])?$")
_TAGS = re.compile(r"\s*\[[^\]]*\]")


@dataclass(frozen=True, slots=True)
class Chosen:
    """One test of a daily tier."""

    tier: str
    feature: str
    name: str


@dataclass(frozen=True, slots=True)
class Selection:
    """What ginkgo runs: regular expressions for full names, and a label expression."""

    focus: str = ""
    skip: str = ""
    labels: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """One test that ran."""

    name: str
    feature: str
    outcome: Outcome
    seconds: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One feature in the table of results."""

    feature: str
    passed: int = 0
    failed: int = 0
    seconds: float = 0.0
    failures: tuple[Result, ...] = field(default=())


def read_tiers(text: str) -> tuple[Chosen, ...]:
    """Parse tiers.txt. Raises Invalid for a line that is not `tier | feature | name`."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = [part.strip() for part in line.split(" | ", 2)]
        if len(parts) != 3:
            raise Invalid(f"line {number} is not `tier | feature | name`: {line!r}", obj="tiers.txt")
        found.append(Chosen(*parts))
    return tuple(found)


def select(tier: str, chosen: Iterable[Chosen], *, focus: str, skip: str, serial: bool) -> Selection:
    """What to run for a tier; `focus` replaces the tier.

    "full" is [Conformance], without serial and disruptive tests unless `serial`.
    """
    if focus:
        return Selection(focus=focus, skip=skip)
    if tier == "full":
        return Selection(skip=skip, labels="Conformance" if serial else "Conformance && !Serial && !Disruptive")
    wanted = {"smoke": ("smoke",), "dev": ("smoke", "dev")}[tier]
    names = [exactly(test.name) for test in chosen if test.tier in wanted]
    return Selection(focus="|".join(names), skip=skip)


def for_server(selection: Selection, release: str, ours: str) -> Selection:
    """The same without tests that need nodes newer than the control plane's minor version `release`.

    The APIs they use are not served there. `ours` is the minor version of the suite.
    """
    first, last = int(release.rpartition(".")[2]) + 1, int(ours.rpartition(".")[2])
    if first > last:
        return selection
    newer = "|".join(str(minor) for minor in range(first, last + 1))
    skip = rf"\[MinimumKubeletVersion:1\.({newer})\]"
    return replace(selection, skip=f"{selection.skip}|{skip}" if selection.skip else skip)


def exactly(name: str) -> str:
    """A Go regular expression that matches exactly the test of that name."""
    return re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", name) + "$"


def alone(name: str, cluster: str, kubeconfig: str = "") -> str:
    """The command line that runs only this test."""
    if kubeconfig:
        return our_line(DEFAULT_NAME, "conformance", "--kubeconfig", kubeconfig, "--focus", exactly(name))
    return our_line(cluster, "conformance", "--focus", exactly(name))


def ginkgo_line(selection: Selection, ginkgo: str, *, procs: int, timeout: str) -> list[str]:
    """The beginning of every ginkgo command line."""
    line = [ginkgo, f"--procs={procs}", f"--timeout={timeout}", "--no-color", "--silence-skips"]
    line += [f"--focus={selection.focus}"] if selection.focus else []
    line += [f"--skip={selection.skip}"] if selection.skip else []
    line += [f"--label-filter={selection.labels}"] if selection.labels else []
    return line


def arguments(
    selection: Selection,
    *,
    ginkgo: str,
    e2e: str,
    kubectl: str,
    kubeconfig: str,
    results: str,
    procs: int,
    dry_run: bool = False,
    storage_driver: str = "",
    timeout: str = "6h",
) -> list[str]:
    """The command line: ginkgo runs e2e.test in several processes; tests marked as serial run last and alone.

    Flags as in test/e2e/framework/test_context.go; nodes are reached through the API server only, so no provider.
    """
    line = ginkgo_line(selection, ginkgo, procs=1 if dry_run else procs, timeout=timeout)
    line += ["--dry-run", "-v"] if dry_run else ["--poll-progress-after=0"]
    line += [
        e2e,
        "--",
        "--provider=skeleton",
        f"--kubeconfig={kubeconfig}",
        f"--kubectl-path={kubectl}",
        f"--report-dir={results}",
        "--disable-log-dump",
        "--report-complete-junit",
    ]
    line += [f"-storage.testdriver={storage_driver}"] if storage_driver else []
    return line


def read_junit(text: str, features: Mapping[str, str]) -> tuple[Result, ...]:
    """The results in a JUnit report; steps that are no tests (such as BeforeSuite) count only when they fail."""
    found = []
    for case in ElementTree.fromstring(text).iter("testcase"):
        name, status = case.get("name", ""), case.get("status", "")
        is_test = name.startswith("[It]")
        name = without_labels(name.removeprefix("[It]").strip())
        failure = case.find("failure")
        if failure is None:
            failure = case.find("error")
        if failure is None and (case.find("skipped") is not None or status in ("skipped", "pending")):
            continue
        if failure is None and not is_test:
            continue
        outcome: Outcome = "passed" if failure is None else "failed"
        reason = "" if failure is None else _reason(failure)
        found.append(Result(name, feature_of(name, features), outcome, float(case.get("time") or 0), reason))
    return tuple(found)


def without_labels(name: str) -> str:
    """The text of a test as --focus matches it."""
    return _LABELS.sub("", name)


def _reason(failure: ElementTree.Element) -> str:
    text = failure.get("message") or failure.text or "no reason given"
    return re.sub(r"\s+", " ", text).strip()[:600]


def feature_of(name: str, features: Mapping[str, str]) -> str:
    """A test's row in the table: its feature in tiers.txt, else its SIG and the first words of its description."""
    bare = bare_name(name)
    if bare in features:
        return features[bare]
    sig = _SIG.search(name)
    rest = _TAGS.sub("", name).strip()
    words = re.split(r" should | when | that |: ", rest, maxsplit=1)[0].split()
    return f"{sig.group(1) if sig else 'suite'}: {' '.join(words[:4])}".rstrip(": ")


def bare_name(name: str) -> str:
    """A name without its labels, as reports order them differently."""
    return " ".join(_TAGS.sub("", name).split())


def table(results: Sequence[Result]) -> tuple[Row, ...]:
    """One row for each feature, sorted by name."""
    rows: dict[str, Row] = {}
    for result in results:
        row = rows.get(result.feature, Row(result.feature))
        failed = result.outcome == "failed"
        rows[result.feature] = Row(
            row.feature,
            row.passed + (not failed),
            row.failed + failed,
            row.seconds + result.seconds,
            (*row.failures, result) if failed else row.failures,
        )
    return tuple(rows[name] for name in sorted(rows))
