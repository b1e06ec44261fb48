"""What is read of ginkgo's files: lists, passed, failed, those that skipped themselves, those that were not reached."""

from __future__ import annotations

import json
import re

import pytest

from controlplane.scoreboard.model import Outcome, Program, Spec
from controlplane.scoreboard.plan import reports
from nodelib.errors import Invalid

NAMES = (
    "[sig-node] Pods runs (once) [Conformance]",
    "[sig-node] Pods fails",
    "[sig-node] Pods has no  such device [Serial]",
    "[sig-node] Pods is not chosen",
    "[sig-node] Pods is interrupted",
)
SPECS = tuple(Spec(Program.NODE, name) for name in NAMES)

REPORT = """<testsuites><testsuite>
 <testcase name="[SynchronizedBeforeSuite]" status="passed" time="1"/>
 <testcase name="[It] [sig-node] Pods runs (once) [Conformance] [sig-node, Conformance]" status="passed" time="2.34"/>
 <testcase name="[It] [sig-node] Pods fails [sig-node]" status="failed" time="3">
   <failure message="no&#10; answer: &lt;*url.Error | 0xc0012ab8&gt; @ 11/26/26 23:51:43.172"/></testcase>
 <testcase name="[It] [sig-node] Pods has no  such device [Serial] [sig-node, Serial]" status="skipped" time="0.1">
   <skipped message="skipped - no device"/></testcase>
 <testcase name="[It] [sig-node] Pods is not chosen [sig-node]" status="skipped"><skipped message="skipped"/></testcase>
 <testcase name="[It] [sig-node] Pods is interrupted [sig-node]" status="interrupted" time="9">
   <error message="interrupted by the timeout"/></testcase>
 <testcase name="[It] [sig-node] Pods of another part [sig-node]" status="passed" time="1"/>
</testsuite></testsuites>"""


def test_what_came_of_each_spec() -> None:
    found, problem = reports.read_report(REPORT, SPECS)
    assert found == {
        NAMES[0]: Outcome("passed", 2.3),
        NAMES[1]: Outcome("failed", 3.0, "no answer: <*url.Error | 0x>"),
        NAMES[2]: Outcome("skipped", 0.1, "no device"),
    }
    assert problem == ""


def test_a_suite_that_could_not_begin_says_why() -> None:
    text = '<t><testcase name="[SynchronizedBeforeSuite]"><failure message="no nodes"/></testcase></t>'
    assert reports.read_report(text, SPECS) == ({}, "[SynchronizedBeforeSuite]: no nodes")


def test_the_focus_matches_these_specs_only() -> None:
    chosen = re.compile(reports.focus(SPECS[:2]))
    assert [name for name in NAMES if chosen.search(name)] == list(NAMES[:2])
    assert not chosen.search("[sig-node] Pods fails later")


def _listed(*names: str) -> str:
    found = [
        {"ContainerHierarchyTexts": ["[sig-node]", "Pods"], "LeafNodeType": "It", "LeafNodeText": name}
        for name in names
    ]
    suite = {"ContainerHierarchyTexts": None, "LeafNodeType": "BeforeSuite", "LeafNodeText": ""}
    return json.dumps([{"SpecReports": [suite, *found]}])


def test_the_list_of_a_suite() -> None:
    assert reports.read_listing(Program.NODE, _listed("runs", "has  blanks")) == (
        Spec(Program.NODE, "[sig-node] Pods runs"),
        Spec(Program.NODE, "[sig-node] Pods has  blanks"),
    )


@pytest.mark.parametrize("text", ["", "{}", "[1]", _listed()], ids=["empty", "dict", "number", "none"])
def test_a_list_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        reports.read_listing(Program.NODE, text)


def test_tests_of_one_name_are_one_spec_and_the_worst_of_them_counts() -> None:
    assert reports.read_listing(Program.NODE, _listed("twice", "twice")) == (
        Spec(Program.NODE, "[sig-node] Pods twice"),
    )
    cases = {
        "failed": '<testcase name="[It] {}" status="failed"><failure message="why"/></testcase>',
        "passed": '<testcase name="[It] {}" status="passed"/>',
        "skipped": '<testcase name="[It] {}" status="skipped"><skipped message="skipped - no device"/></testcase>',
    }
    for worst, other in (("failed", "passed"), ("failed", "skipped"), ("passed", "skipped")):
        for both in ((worst, other), (other, worst)):
            text = "".join(cases[one].format(NAMES[1]) for one in both)
            found, _ = reports.read_report(f"<t>{text}</t>", SPECS)
            assert found[NAMES[1]].verdict == worst, both


def test_containers_without_a_name_add_nothing_as_in_the_text_that_a_focus_matches() -> None:
    row = {"ContainerHierarchyTexts": ["[sig-node] Pods", ""], "LeafNodeType": "It", "LeafNodeText": "run"}
    (spec,) = reports.read_listing(Program.NODE, json.dumps([{"SpecReports": [row]}]))
    assert spec.name == "[sig-node] Pods run"
