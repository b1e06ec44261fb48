"""The conformance suite of sigs.k8s.io/network-policy-api: its command line, and what its output says. Pure.

A Go test without ginkgo: its report is the output of `go test -v`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from controlplane.suites.plan.conformance import Outcome, Result

SUITE = "network-policy-api.test"
IMAGE = "registry.k8s.io/e2e-test-images/agnhost:2.45"  # as the suite's manifests name it
_ROOT = "TestConformance"
# Cases that send SCTP packets, and expect them to arrive or to be lost without an answer.
_WITH_SCTP = ("SCTP", "Gress$", "InlineCIDRPeers", "NodePeers/deny-egress")
_STARTED = re.compile(r"=== (?:RUN|CONT|NAME)\s+(\S+)")
_ENDED = re.compile(r"\s*--- (PASS|FAIL|SKIP): (\S+) \(([0-9.]+)s\)")
_OUTCOMES: dict[str, Outcome] = {"PASS": "passed", "FAIL": "failed", "SKIP": "skipped"}
_REASON = re.compile(r"Error:|Expected|FAILED|[Tt]imed out|unable to|error ")
_SHOWN = 3  # lines of a failure


def arguments(suite: str, kubeconfig: str, *, focus: str, skip: str, sctp: bool, timeout: str = "90m") -> list[str]:
    """The command line. `focus` and `skip` are regular expressions for the names below TestConformance, by slashes."""
    left_out = [_below(one) for one in (skip, *(() if sctp else _WITH_SCTP)) if one]
    line = ["env", f"KUBECONFIG={kubeconfig}", suite, "-test.v", f"-test.timeout={timeout}", "-all-features"]
    line.append(f"-test.run={_below(focus)}" if focus else f"-test.run=^{_ROOT}$")
    if left_out:
        line.append("-test.skip=" + "|".join(left_out))
    return line


def _below(pattern: str) -> str:
    """Go splits a pattern at | before it splits it at slashes, but not within parentheses."""
    return "/".join([f"^{_ROOT}$", *(f"({part})" for part in pattern.split("/"))])


def is_read(line: str) -> bool:
    """Whether read_output() needs it: any line may tell why a case failed."""
    return True


def ends_case(line: str) -> bool:
    return _ENDED.match(line) is not None


def read_output(lines: Iterable[str]) -> tuple[Result, ...]:
    """The cases that ran, and tests that failed before their first case. The feature is the test's name."""
    ended: dict[str, Result] = {}
    reasons: dict[str, list[str]] = {}
    current = ""
    for line in lines:
        if found := _STARTED.match(line):
            current = found[1]
        elif found := _ENDED.match(line):
            name = found[2]
            _, _, below = name.partition("/")
            outcome = _OUTCOMES[found[1]]
            why = " | ".join(reasons.get(name, [])[-_SHOWN:]) if outcome == "failed" else ""
            ended[name] = Result(below, below.partition("/")[0], outcome, float(found[3]), why)
        elif _REASON.search(line):
            reasons.setdefault(current, []).append(" ".join(line.split()))
    parents = {name.rpartition("/")[0] for name in ended}
    return tuple(one for name, one in ended.items() if name not in parents and one.name and one.outcome != "skipped")


def again(name: str) -> list[str]:
    """The options of `conformance` that run this case only."""
    focus = "/".join(f"^{re.escape(part)}$" for part in name.split("/"))
    return ["--suite", "network-policy-api", "--focus", focus]
