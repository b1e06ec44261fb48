"""Reads what ginkgo writes: the list of a dry run (JSON) and the report of a run (JUnit)."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable

from controlplane.scoreboard.model import Outcome, Program, Spec
from controlplane.suites.plan.conformance import exactly, without_labels
from nodelib.errors import Invalid

_LONGEST = 300  # characters of a reason
# In a reason, so that the same one is the same text: the time, and addresses of a Go program's values.
_VARYING = re.compile(r" @ \d\d/\d\d/\d\d [\d:.]+|(?<=\b0x)[0-9a-f]{6,}")
_ENDED_EARLY = ("interrupted", "aborted", "pending")  # the suite did, and not the spec


def listing(program: Program, suite: str, report: str) -> list[str]:
    """The command line that writes every spec of the suite into `report`; it needs no cluster."""
    line = [suite, "--ginkgo.dry-run", "--ginkgo.no-color", f"--ginkgo.json-report={report}"]
    return [*line, "--provider=skeleton"] if program is Program.E2E else line


def read_listing(program: Program, text: str) -> tuple[Spec, ...]:
    """The specs in the report of a dry run. Tests of one name are one spec: no focus tells them apart.

    Raises Invalid for another text, or for no specs.
    """
    try:
        reports = [one for suite in json.loads(text) for one in suite["SpecReports"] or ()]
        names = [
            # As ginkgo makes the text that a focus has to match: containers without a name add nothing.
            " ".join([text for text in (*(one["ContainerHierarchyTexts"] or ()), one["LeafNodeText"]) if text])
            for one in reports
            if one["LeafNodeType"] == "It"
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise Invalid(f"its list of tests cannot be read: {error!r}", obj=program, step="list the tests") from error
    if not names:
        raise Invalid("it lists no tests", obj=program, step="list the tests")
    return tuple(Spec(program, name) for name in dict.fromkeys(names))


def focus(specs: Iterable[Spec]) -> str:
    """A regular expression that matches these specs and no others."""
    return "|".join(exactly(spec.name) for spec in specs)


def read_report(text: str, specs: Iterable[Spec]) -> tuple[dict[str, Outcome], str]:
    """What came of those specs that a report has, by name, and the first failure of what is no spec. Of tests that
    have the same name one counts: that failed, otherwise that passed.

    Raises ElementTree.ParseError for what is no XML.
    """
    names = {_key(spec.name): spec.name for spec in specs}
    found, problem = dict[str, Outcome](), ""
    for case in ElementTree.fromstring(text).iter("testcase"):
        title = case.get("name", "")
        failure = next((one for one in map(case.find, ("failure", "error")) if one is not None), None)
        if not title.startswith("[It]"):
            problem = problem or ("" if failure is None else f"{title}: {_reason(failure)}")
            continue
        name = names.get(_key(without_labels(title.removeprefix("[It]").strip())))
        if name is None or case.get("status") in _ENDED_EARLY:
            continue
        skipped = case.find("skipped")
        known = found[name].verdict if name in found else ""
        if failure is not None:
            found[name] = Outcome("failed", _seconds(case), _reason(failure))
        elif known == "failed" or (known == "passed" and skipped is not None):
            continue
        elif skipped is None:
            found[name] = Outcome("passed", _seconds(case))
        elif reason := _reason(skipped).removeprefix("skipped").removeprefix(" - "):
            found[name] = Outcome("skipped", _seconds(case), reason)
    return found, problem


def _key(name: str) -> str:
    return " ".join(name.split())


def _seconds(case: ElementTree.Element) -> float:
    return round(float(case.get("time") or 0), 1)


def _reason(element: ElementTree.Element) -> str:
    text = element.get("message") or element.text or "no reason given"
    return _VARYING.sub("", re.sub(r"\s+", " ", text)).strip()[:_LONGEST]
