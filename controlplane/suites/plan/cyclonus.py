"""The policy suite cyclonus: its command line, and what its output says. Pure.

Each case sets policies, labels or pods, has each of nine pods ask all nine on every port and protocol, and compares the
answers with those of its own model. A case passes when no step has a wrong answer. A pod is given all it has to ask in
a step at once, as a list (decision 0076).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from controlplane.suites.plan.conformance import Outcome, Result

SUITE = "cyclonus"
IMAGE = "docker.io/mfenwick100/cyclonus-worker:latest"  # as the suite names it, and containerd keeps it
_LISTED = re.compile(r"test #(\d+): (.*)")
_TAGS = re.compile(r" - tags: (.*)")
_STARTED = re.compile(r"starting test case #(\d+)")
_STEP = re.compile(r"(?:Discrepancy found:)?(\d+) wrong, (\d+) ignored, (\d+) correct")
_ENDED = re.compile(r"finished policy #(\d+)")


def arguments(suite: str, kubeconfig: str, *, focus: str, skip: str, sctp: bool) -> list[str]:
    """The command line. `focus` and `skip` are tags, by commas; the suite's own default leaves out half of it."""
    protocols = ("TCP", "UDP", "SCTP") if sctp else ("TCP", "UDP")
    left_out = ",".join(one for one in (skip, "" if sctp else "sctp") if one)
    return [
        *("env", f"KUBECONFIG={kubeconfig}", suite, "generate"),
        f"--server-protocol={','.join(protocols)}",
        f"--include={focus}",
        f"--exclude={left_out}",
        # No --job-timeout-seconds: whoever works off a list gives each connect one second, and a second try.
        *("--perturbation-wait-seconds=2", "--retries=3"),
        # "A Pod cannot block access to itself" (kubernetes.io/docs/concepts/services-networking/network-policies); in
        # the suite's model it can.
        "--ignore-loopback",
        *("--pod-creation-timeout-seconds=300", "--cleanup-namespaces"),
    ]


def is_read(line: str) -> bool:
    """Whether read_output() needs it; of all others, tables of some hundred lines a case, nothing is kept."""
    return any(pattern.match(line) for pattern in (_LISTED, _TAGS, _STARTED, _STEP, _ENDED))


def ends_case(line: str) -> bool:
    return _ENDED.match(line) is not None


def read_output(lines: Iterable[str]) -> tuple[Result, ...]:
    """The cases that ended, in their order. The feature is the direction of their policies."""
    names: dict[str, str] = {}
    features: dict[str, str] = {}
    found: list[Result] = []
    listed = current = ""
    wrong, steps = 0, list[str]()
    for line in lines:
        if match := _LISTED.match(line):
            listed = match[1]
            names[listed] = match[2]
        elif match := _TAGS.match(line):
            features[listed] = _direction(match[1].split(", "))
        elif match := _STARTED.match(line):
            current, wrong, steps = match[1], 0, []
        elif match := _STEP.match(line):
            wrong += int(match[1])
            steps.append(match[0])
        elif (match := _ENDED.match(line)) and match[1] == current:
            outcome: Outcome = "passed" if steps and not wrong else "failed"
            reason = "" if outcome == "passed" else " | ".join(steps) or "no step was evaluated"
            found.append(Result(f"#{current} {names.get(current, '')}", features.get(current, ""), outcome, 0, reason))
    return tuple(found)


def again(name: str) -> list[str]:
    """The options of `conformance` that run this case: it cannot be run alone."""
    return ["--suite", SUITE]


def _direction(tags: list[str]) -> str:
    return " and ".join(tag for tag in ("ingress", "egress") if tag in tags) or "no policy"
