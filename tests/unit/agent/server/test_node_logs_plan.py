"""/logs/?query=: what may be asked, and how the journal is asked."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.server.plan.node_logs import BadQuery, LogQuery, arguments, check, file_names, in_journal, parse


def _query(text: str) -> LogQuery | None:
    from urllib.parse import parse_qsl

    found = parse(parse_qsl(text, keep_blank_values=True))
    if found is not None:
        check(found)
    return found


@pytest.mark.parametrize(
    ("text", "query"),
    [
        pytest.param("", None, id="none"),
        pytest.param("other=1", None, id="of something else"),
        pytest.param("query=kubelet", LogQuery(("kubelet",)), id="service"),
        pytest.param("query=a&query=b", LogQuery(("a", "b")), id="services"),
        pytest.param("query=/foo.log", LogQuery(files=("/foo.log",)), id="file"),
        pytest.param("query=a%5Cb", LogQuery(files=("a\\b",)), id="file of Windows"),
        pytest.param("query=foo.log", LogQuery(("foo.log",)), id="perhaps a file"),
        pytest.param("query=a&query=%20", LogQuery(("a",)), id="one is blank"),
        pytest.param(
            "query=a&tailLines=3&boot=-1&pattern=x", LogQuery(("a",), (), None, None, -1, 3, "x"), id="options"
        ),
        pytest.param(
            "query=a&sinceTime=1970-01-01T00:00:10Z&untilTime=1970-01-01T01:00:20%2B01:00",
            LogQuery(("a",), (), 10.0, 20.0),
            id="times",
        ),
        pytest.param("query=a&pattern=%5CpL%2B(%3F%3Ax)%5Cz", LogQuery(("a",), pattern=r"\pL+(?:x)\z"), id="of Go"),
    ],
)
def test_a_query(text: str, query: LogQuery | None) -> None:
    assert _query(text) == query


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("query=", 'query: Invalid value: [""]: may not be empty'),
        ("query=%20%20", "may not be empty"),
        ("query=a&sinceTime=yesterday", 'sinceTime: Invalid value: "yesterday": invalid time format'),
        ("query=a&boot=x", 'boot: Invalid value: "x": is not a whole number'),
        ("query=a&tailLines=9999999999999999999999", "tailLines: Invalid value"),
        ("boot=x&tailLines=y", "[boot: Invalid value"),
    ],
)
def test_what_cannot_be_read(text: str, said: str) -> None:
    with pytest.raises(BadQuery) as caught:
        _query(text)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tailLines=1", "query: Required value: cannot be empty with options"),
        ("query=a&query=/b", "cannot specify a file and service"),
        ("query=/a&query=/b", "cannot specify more than one file"),
        ("query=/a&boot=0", "cannot specify file with options"),
        ("query=a%3Brm", "input contains unsupported characters"),
        ("query=a%20--file", "input contains unsupported characters"),
        ("query=" + "a" * 257, "length must be less than 256"),
        ("&".join(f"query={name}" for name in "abcde"), "query: Too many: 5: must have at most 4 items"),
        ("query=a&boot=1", "boot: Invalid value: 1: must be less than 1"),
        ("query=a&tailLines=-1", "must be between 0 and 100000, inclusive"),
        ("query=a&tailLines=100001", "must be between 0 and 100000, inclusive"),
        ("query=a&pattern=%5Ba", "pattern: Invalid value"),
        (f"query=a&pattern={'x' * 2049}", "pattern: Too long"),
        ("query=a&sinceTime=1970-01-01T00:00:10Z&untilTime=1970-01-01T00:00:09Z", "must be after `sinceTime`"),
    ],
)
def test_what_may_not_be_asked(text: str, said: str) -> None:
    with pytest.raises(BadQuery) as caught:
        _query(text)
    assert said in str(caught.value)


FULL = LogQuery(("kubelet",), (), 0.0, 60.0, -1, 5, "error|warn")
COMMAND = [
    "journalctl", "--utc", "--no-pager", "--output=short-precise",
    "--since=1970-01-01 00:00:00 UTC", "--until=1970-01-01 00:01:00 UTC",
    "--pager-end", "--lines=5", "--unit=kubelet", "--grep=error|warn", "--boot", "-1",
]  # fmt: skip


def test_the_journals_command() -> None:
    assert arguments(FULL, FULL.services) == COMMAND
    assert arguments(LogQuery(("a",)), ("a",)) == [*COMMAND[:4], "--unit=a"]


@pytest.mark.skipif(shutil.which("journalctl") is None, reason="there is no journalctl on this machine")
def test_the_journals_command_is_one_that_it_understands() -> None:
    for query in (FULL, LogQuery(("a",)), LogQuery(("a",), boot=0, pattern="--file=/etc/shadow")):
        done = subprocess.run(arguments(query, query.services), capture_output=True, text=True, timeout=60)
        said = done.stdout + done.stderr
        assert not any(word in said for word in ("unrecognized", "invalid", "Failed to parse", "Try ")), said


@given(st.lists(st.tuples(st.sampled_from(["query", "pattern", "boot", "tailLines", "sinceTime"]), st.text())))
def test_no_value_becomes_an_option_of_its_own(parameters: list[tuple[str, str]]) -> None:
    try:
        query = parse(parameters)
        if query is None:
            return
        check(query)
    except BadQuery:
        return
    for word in arguments(query, query.services)[1:]:
        assert word in ("--utc", "--no-pager", "--pager-end", "--boot", str(query.boot)) or word.startswith(
            ("--output=short-precise", "--since=", "--until=", "--lines=", "--unit=", "--grep=")
        )


def test_services_of_the_journal_and_others() -> None:
    assert in_journal(("kubelet", "web"), "kubelet.service\nssh.service\n") == (["kubelet"], ["web"])
    assert in_journal(("kubelet",), "") == ([], ["kubelet"])
    assert file_names("web") == ("web", "web.log", "web/web.log")
