"""The suite of network-policy-api: its command line, and what is read of its output."""

from __future__ import annotations

import re

import pytest

from controlplane.binaries.model import TABLE
from controlplane.binaries.plan.go_runs import file_name
from controlplane.images.plan.known import BY_NAME, CONFORMANCE, DEMO
from controlplane.suites.plan.conformance import Result
from controlplane.suites.plan.network_policy_api import IMAGE, SUITE, again, arguments, read_output

WITH_SCTP = "|".join(
    f"^TestConformance$/{one}" for one in ("(SCTP)", "(Gress$)", "(InlineCIDRPeers)", "(NodePeers)/(deny-egress)")
)
OUTPUT = """\
=== RUN   TestConformance
    conformance_test.go:58: Running conformance tests with cleanup: true
=== RUN   TestConformance/TierTCP
    apply.go:240: Creating egress-tcp
=== RUN   TestConformance/TierTCP/Should_support_an_'allow'_policy;_with_rules
=== RUN   TestConformance/TierTCP/Should_support_a_'deny'_policy
    helper.go:93: Expected connection to fail from a/b to 10.0.0.1, but instead it successfully connected.
    helper.go:66:
            Error Trace:  /x/helper.go:66
            Error:        Condition never satisfied
=== RUN   TestConformance/Nodes
    suite.go:230: error creating namespace: timed out
=== RUN   TestConformance/TierSCTP
    suite.go:199: Skipping TierSCTP: suite does not support it
--- FAIL: TestConformance (63.40s)
    --- FAIL: TestConformance/TierTCP (11.50s)
        --- PASS: TestConformance/TierTCP/Should_support_an_'allow'_policy;_with_rules (0.70s)
        --- FAIL: TestConformance/TierTCP/Should_support_a_'deny'_policy (10.53s)
    --- FAIL: TestConformance/Nodes (0.01s)
    --- SKIP: TestConformance/TierSCTP (0.00s)
FAIL
"""


def test_each_case_and_each_test_that_failed_before_its_first_case_is_a_result() -> None:
    allow, deny, nodes = read_output(OUTPUT.splitlines())
    assert allow == Result("TierTCP/Should_support_an_'allow'_policy;_with_rules", "TierTCP", "passed", 0.7)
    assert (deny.outcome, deny.seconds) == ("failed", 10.53)
    assert deny.reason.startswith("helper.go:93: Expected connection") and "never satisfied" in deny.reason
    assert (nodes.name, nodes.outcome) == ("Nodes", "failed") and "timed out" in nodes.reason
    assert read_output(["panic: x"]) == ()


@pytest.mark.parametrize(
    ("sctp", "skip", "wanted"),
    [
        (True, "", None),
        (False, "", f"-test.skip={WITH_SCTP}"),
        (True, "Gress|Priority", "-test.skip=^TestConformance$/(Gress|Priority)"),
        (False, "Priority", f"-test.skip=^TestConformance$/(Priority)|{WITH_SCTP}"),
    ],
)
def test_sctp_is_left_out_where_the_kernel_has_none(sctp: bool, skip: str, wanted: str | None) -> None:
    line = arguments("/suite", "/config", focus="", skip=skip, sctp=sctp)
    assert line[:3] == ["env", "KUBECONFIG=/config", "/suite"]
    assert [one for one in line if one.startswith("-test.skip")] == ([wanted] if wanted else [])
    assert "-test.run=^TestConformance$" in line


def test_one_case_can_be_run_again() -> None:
    name = "TierTCP/Should_support_an_'allow'_policy;_with_rules"
    *_, focus = again(name)
    parts = focus.split("/")
    assert all(re.search(part, one) for part, one in zip(parts, name.split("/"), strict=True))


def test_the_program_and_the_image_are_known_and_no_other_suite_builds_them() -> None:
    assert file_name(TABLE[SUITE]) == "conformance.test"
    assert IMAGE in BY_NAME and IMAGE not in (*CONFORMANCE, *DEMO)
