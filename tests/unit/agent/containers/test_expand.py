"""$(VAR) expansion: the cases of upstream's expansion spec."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.containers.plan.expand import MOST_TEXT, expand, expand_all, expand_sub_path, lookup_in
from nodelib.errors import Invalid

KNOWN = {"VAR_A": "A", "VAR_B": "B", "VAR_C": "C", "VAR_REF": "$(VAR_A)", "VAR_EMPTY": ""}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("$(VAR_A)", "A", id="whole"),
        pytest.param("$(VAR_A)-$(VAR_A)", "A-A", id="repeat"),
        pytest.param("___$(VAR_B)___", "___B___", id="middle"),
        pytest.param("___$(VAR_C)", "___C", id="end"),
        pytest.param("$(VAR_A)_$(VAR_B)_$(VAR_C)", "A_B_C", id="compound"),
        pytest.param("$$(VAR_B)_$(VAR_A)", "$(VAR_B)_A", id="escape and expand"),
        pytest.param("$$(VAR_A)_$$(VAR_B)", "$(VAR_A)_$(VAR_B)", id="compound escape"),
        pytest.param("f000-$$VAR_A", "f000-$VAR_A", id="mixed escapes"),
        pytest.param("foo\\$(VAR_C)bar", "foo\\Cbar", id="backslash is no escape"),
        pytest.param("$(VAR_A$(VAR_B))", "$(VAR_A$(VAR_B))", id="nested"),
        pytest.param("$(VAR_A$(VAR_B)", "$(VAR_A$(VAR_B)", id="nested, second type"),
        pytest.param("%%$(VAR_REF)--$(VAR_REF)%%", "%%$(VAR_A)--$(VAR_A)%%", id="value is a reference"),
        pytest.param("foo$(VAR_EMPTY)bar", "foobar", id="empty value"),
        pytest.param("foo$(VAR_Awhoops!", "foo$(VAR_Awhoops!", id="unterminated"),
        pytest.param("f00__(VAR_A)__", "f00__(VAR_A)__", id="no operator"),
        pytest.param("$?_boo_$!", "$?_boo_$!", id="shell specials"),
        pytest.param("$VAR_A", "$VAR_A", id="bare"),
        pytest.param("$(VAR_DNE)", "$(VAR_DNE)", id="unknown"),
        pytest.param("$$$$$$(VAR_A)", "$$$(VAR_A)", id="even operators"),
        pytest.param("$$$$$$$(GOOD_ODDS)", "$$$$(GOOD_ODDS)", id="odd operators, unknown"),
        pytest.param("$$$$$$$(VAR_A)", "$$$A", id="odd operators"),
        pytest.param("$VAR_A)", "$VAR_A)", id="no opening"),
        pytest.param("${VAR_A}", "${VAR_A}", id="shell syntax"),
        pytest.param("$(VAR_B)_______$(A", "B_______$(A", id="incomplete at the end"),
        pytest.param("$(VAR_C)_______$(", "C_______$(", id="only the opening at the end"),
        pytest.param("$(VAR_A)foobarzab$", "Afoobarzab$", id="operator at the end"),
        pytest.param("--$($($($($--", "--$($($($($--", id="many openings"),
        pytest.param("$(foo$$var)", "$(foo$$var)", id="escapes in names stay"),
        pytest.param("\n", "\n", id="newline"),
        pytest.param("prefix-$€-suffix", "prefix-$€-suffix", id="not ASCII"),
        pytest.param("$中文", "$中文", id="Chinese"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_expand(text: str, expected: str) -> None:
    assert expand(text, lookup_in(KNOWN)) == expected


def test_first_map_wins() -> None:
    assert expand("$(A)$(B)", lookup_in({"A": "1"}, {"A": "2", "B": "3"})) == "13"


@given(st.text(alphabet="$()AB \n€", max_size=40))
def test_unknown_names_change_nothing_but_escapes(text: str) -> None:
    assert expand(text.replace("$", "$$"), lookup_in({})) == text


def test_sub_path_expression() -> None:
    assert expand_sub_path("logs/$(POD)", {"POD": "web"}) == "logs/web"


@pytest.mark.parametrize("env", [{}, {"POD": ""}], ids=["unknown", "empty"])
def test_sub_path_expression_needs_values(env: dict[str, str]) -> None:
    with pytest.raises(Invalid, match="missing value for POD"):
        expand_sub_path("logs/$(POD)", env)


def test_openings_without_an_end_take_no_longer_than_text() -> None:
    # 1.2 MB is what the API server accepts. Looking for the end of each opening took half a minute, on the event loop.
    begin = time.process_time()
    assert expand("$(" * 600_000, lookup_in({})) == "$(" * 600_000
    assert time.process_time() - begin < 5


def test_references_that_make_too_much_text_are_refused() -> None:
    known = {"A": "x" * (MOST_TEXT // 4)}
    assert len(expand("$(A)$(A)$(A)$(A)", lookup_in(known))) == MOST_TEXT
    with pytest.raises(Invalid, match="make more than"):
        expand("$(A)$(A)$(A)$(A)$(A)", lookup_in(known))
    with pytest.raises(Invalid, match="make more than"):
        expand_all(["$(A)"] * 5, known)
    with pytest.raises(Invalid, match="make more than"):
        expand_sub_path("$(A)" * 5, known)


def test_a_sub_path_is_no_longer_than_a_path_may_be() -> None:
    """Two hundred mounts, in a pod of 800 KB, made three gigabytes of paths that no kernel would take."""
    assert len(expand_sub_path("$(A)" * 4, {"A": "x" * 1000})) == 4000
    with pytest.raises(Invalid, match="more than 4096 characters"):
        expand_sub_path("$(A)" * 5, {"A": "x" * 1000})
