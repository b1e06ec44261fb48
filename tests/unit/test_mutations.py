"""The table of tests/mutations fits the code as it is, and the tests that docs/mutations.md names exist.

What the tests themselves say is asked by hand, since it takes long: `python -m tests.mutations`.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.mutations.model import Mutation, Verdict
from tests.mutations.page import noticed_by, rewritten
from tests.mutations.table import TABLE

PROJECT = Path(__file__).resolve().parents[2]
PAGE = (PROJECT / "docs" / "mutations.md").read_text()
_TEST = re.compile(r"`((?:unit|netns)/\S+\.py)::(test_\w+)`")


def test_every_feature_has_a_name_of_its_own_and_there_are_many() -> None:
    assert [name for name, count in Counter(one.id for one in TABLE).items() if count > 1] == []
    assert len(TABLE) >= 40


@pytest.mark.parametrize("one", TABLE, ids=lambda one: one.id)
def test_the_change_can_be_made_and_leaves_python(one: Mutation) -> None:
    text = (PROJECT / one.file).read_text()
    ast.parse(one.applied(text))
    assert ast.dump(ast.parse(text)) != ast.dump(ast.parse(one.applied(text)))
    assert [path for path in one.tests if not (PROJECT / "tests" / path).exists()] == []


def test_the_page_names_a_test_that_exists_for_every_feature_that_was_asked() -> None:
    answers = noticed_by(PAGE)
    assert list(answers) == [one.id for one in TABLE if one.id in answers]
    assert len(answers) >= 40
    for name, answer in answers.items():
        named = _TEST.fullmatch(answer)
        assert named, f"{name}: {answer}"
        text = (PROJECT / "tests" / named[1]).read_text()
        assert re.search(rf"^(?:async )?def {named[2]}\(", text, re.MULTILINE), name


def test_a_row_keeps_its_answer_until_it_is_asked_again() -> None:
    first, second = TABLE[:2]
    head = PAGE[: PAGE.index("| `")]
    both = rewritten(head, (first, second), [Verdict(first, noticed="unit/a.py::test_b"), Verdict(second)])
    assert noticed_by(both) == {first.id: "`unit/a.py::test_b`", second.id: "nothing"}
    again = rewritten(both, (first, second), [Verdict(second, noticed="unit/c.py::test_d")])
    assert noticed_by(again) == {first.id: "`unit/a.py::test_b`", second.id: "`unit/c.py::test_d`"}
    assert noticed_by(rewritten(again, (second,), [])) == {second.id: "`unit/c.py::test_d`"}


def test_a_text_that_is_not_there_once_is_an_error() -> None:
    with pytest.raises(ValueError, match="2 times"):
        Mutation("a", "b", "c.py", "x", "y", ()).applied("x x")
