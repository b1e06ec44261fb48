"""The suite cyclonus: its command line, and what is read of its output."""

from __future__ import annotations

import pytest

from controlplane.binaries.model import TABLE
from controlplane.images.model.recipe import Built
from controlplane.images.plan.known import BY_NAME, CONFORMANCE, DEMO
from controlplane.suites.plan.conformance import Result
from controlplane.suites.plan.cyclonus import IMAGE, SUITE, arguments, ends_case, is_read, read_output

OUTPUT = """\
testing 3 cases

test #1: ingress: allow all
 - tags: allow-all, create-policy, ingress
test #2: set labels
 - tags: egress, ingress, set-pod-labels
test #3: named port
 - tags: egress, named-port
starting test case #1
evaluating test case: ingress: allow all
step 1 on all available ports/protocols:
0 wrong, 0 ignored, 324 correct
finished policy #1
starting test case #2
step 1 on port 80, protocol TCP:
0 wrong, 9 ignored, 72 correct
step 2 on port 80, protocol TCP:
Discrepancy found:2 wrong, 0 ignored, 79 correct
finished policy #2
starting test case #3
"""


def test_a_case_passes_when_no_step_has_a_wrong_answer() -> None:
    allow, labels = read_output(OUTPUT.splitlines())
    assert allow == Result("#1 ingress: allow all", "ingress", "passed", 0)
    assert (labels.name, labels.feature, labels.outcome) == ("#2 set labels", "ingress and egress", "failed")
    assert "2 wrong, 0 ignored, 79 correct" in labels.reason


def test_a_case_without_a_step_has_not_passed() -> None:
    (result,) = read_output(["starting test case #1", "finished policy #1"])
    assert result.outcome == "failed" and "no step" in result.reason


def test_what_is_not_read_is_not_kept() -> None:
    kept = [line for line in OUTPUT.splitlines() if is_read(line)]
    assert read_output(kept) == read_output(OUTPUT.splitlines())
    assert len(kept) < len(OUTPUT.splitlines()) - 3
    assert not is_read("|  | x/a | x/b |")
    assert [line for line in OUTPUT.splitlines() if ends_case(line)] == ["finished policy #1", "finished policy #2"]


@pytest.mark.parametrize(
    ("sctp", "exclude", "wanted"),
    [(True, "", "--exclude="), (False, "", "--exclude=sctp"), (False, "example", "--exclude=example,sctp")],
)
def test_the_suites_own_exclusions_are_replaced(sctp: bool, exclude: str, wanted: str) -> None:
    line = arguments("/suite", "/config", focus="egress", skip=exclude, sctp=sctp)
    assert line[:4] == ["env", "KUBECONFIG=/config", "/suite", "generate"]
    assert wanted in line and "--include=egress" in line
    assert "--ignore-loopback" in line
    assert ("--server-protocol=TCP,UDP,SCTP" in line) == sctp


def test_its_program_and_image_are_known_and_part_of_no_other_cluster() -> None:
    assert TABLE[SUITE].module == "cyclonus"
    assert IMAGE in BY_NAME and IMAGE not in (*CONFORMANCE, *DEMO)


def test_its_image_has_what_is_executed_in_its_pods() -> None:
    recipe = BY_NAME[IMAGE]
    found = {source.path for layer in recipe.layers for source in layer.sources if isinstance(source, Built)}
    assert found >= {"agnhost", "worker"}
    assert {TABLE[name].module for name in recipe.binaries} >= {"cyclonus"}
