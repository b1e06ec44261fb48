"""/logs/?query=: what is asked for, whether it may be, and as which command (kubelet_server_journal.go). Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from nodelib.kube.times import parse_rfc3339

COMMAND = "journalctl"
UNITS = ("--field", "_SYSTEMD_UNIT")  # every unit that has written to the journal, a line each
_MOST_LINES = 100_000
_MOST_SERVICES = 4
_LONGEST_SERVICE = 256
_LONGEST_PATTERN = 2048
_UNSAFE = re.compile(r"[^a-zA-Z\-_.:0-9@]")  # also keeps a name from being taken for an option or a path
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
# What Go's syntax of expressions has and Python's has not; the journal's, PCRE2, has all of it.
_OF_GO = re.compile(r"\\[pP](?:\{\^?\w+\}|\w)|\\[zCQE]|\[\[:\^?\w+:\]\]|\(\?U\)")


@dataclass(frozen=True, slots=True)
class LogQuery:
    """Services (units of systemd, or files named after them) or files below the folder of logs. Times in seconds."""

    services: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    since: float | None = None
    until: float | None = None
    boot: int | None = None
    lines: int | None = None
    pattern: str = ""

    @property
    def has_options(self) -> bool:
        """Whether more than services and files is asked for: only the journal can answer that."""
        return self != LogQuery(self.services, self.files)


class BadQuery(ValueError):
    """A query that is refused."""


def parse(parameters: Sequence[tuple[str, str]]) -> LogQuery | None:
    """The query of a request, None if it has none. Raises BadQuery, for which upstream answers 400."""
    given: dict[str, str] = {}
    asked: list[str] = []
    for name, value in parameters:
        given.setdefault(name, value)
        if name == "query":
            asked.append(value)
    problems: list[str] = []
    files = tuple(value for value in asked if "/" in value or "\\" in value)
    services = tuple(value for value in asked if value not in files and value.strip())
    if asked and not files and not services:
        problems.append(_invalid("query", asked, "may not be empty"))
    query = LogQuery(
        services,
        files,
        _time(given, "sinceTime", problems),
        _time(given, "untilTime", problems),
        _whole(given, "boot", problems),
        _whole(given, "tailLines", problems),
        given.get("pattern", ""),
    )
    if problems:
        raise BadQuery(_together(problems))
    return None if query == LogQuery() else query


def check(query: LogQuery) -> None:
    """Raises BadQuery, for which upstream answers 406, if the parts of the query may not be or do not fit.

    Blocking: an expression of many large sets of characters takes seconds to compile.
    """
    problems = list(_problems(query))
    if problems:
        raise BadQuery(_together(problems))


def arguments(query: LogQuery, services: Iterable[str]) -> list[str]:
    """The journal's command for these services. Each value is part of its option: none can be another option."""
    found = ["--utc", "--no-pager", "--output=short-precise"]
    if query.since is not None:
        found.append(f"--since={_journal_time(query.since)}")
    if query.until is not None:
        found.append(f"--until={_journal_time(query.until)}")
    if query.lines is not None:
        found += ["--pager-end", f"--lines={query.lines}"]
    found += [f"--unit={service}" for service in services]
    if query.pattern:
        found.append(f"--grep={query.pattern}")
    if query.boot is not None:
        found += ["--boot", str(query.boot)]
    return [COMMAND, *found]


def in_journal(services: Iterable[str], units: str) -> tuple[list[str], list[str]]:
    """The services that write to the journal, and the others. `units`: what the journal says to UNITS."""
    native: list[str] = []
    others: list[str] = []
    for service in services:
        (native if f"{service}.service" in units else others).append(service)
    return native, others


def file_names(service: str) -> tuple[str, ...]:
    """Where a service's log may be, below the folder of logs, in the order of trying."""
    return service, f"{service}.log", f"{service}/{service}.log"


def _problems(query: LogQuery) -> Iterator[str]:
    for service in query.services:
        if len(service) > _LONGEST_SERVICE:
            yield _invalid("query", service, f"length must be less than {_LONGEST_SERVICE}")
        elif _UNSAFE.search(service):
            yield _invalid("query", service, "input contains unsupported characters")
    if len(query.services) > _MOST_SERVICES:
        yield f"query: Too many: {len(query.services)}: must have at most {_MOST_SERVICES} items"
    if not query.files and not query.services:
        yield "query: Required value: cannot be empty with options"
    elif query.files and query.services:
        yield _invalid("query", [*query.files, *query.services], "cannot specify a file and service")
    elif len(query.files) > 1:
        yield _invalid("query", list(query.files), "cannot specify more than one file")
    elif query.files and query.has_options:
        yield _invalid("query", list(query.files), "cannot specify file with options")
    if query.since is not None and query.until is not None and query.since > query.until:
        yield _invalid("untilTime", _journal_time(query.until), "must be after `sinceTime`")
    if query.boot is not None and query.boot > 0:
        yield _invalid("boot", query.boot, "must be less than 1")
    if query.lines is not None and not 0 <= query.lines <= _MOST_LINES:
        yield _invalid("tailLines", query.lines, f"must be between 0 and {_MOST_LINES}, inclusive")
    yield from _problems_of_pattern(query.pattern)


def _problems_of_pattern(pattern: str) -> Iterator[str]:
    if len(pattern) > _LONGEST_PATTERN:
        yield f"pattern: Too long: may not be more than {_LONGEST_PATTERN} characters"
        return
    if "\0" in pattern:
        yield _invalid("pattern", pattern, "no command can be given a zero byte")
        return
    try:
        re.compile(_OF_GO.sub("x", pattern))
    except (re.error, RecursionError, OverflowError) as error:
        yield _invalid("pattern", pattern, str(error))
    finally:
        re.purge()  # the module keeps 512 expressions of strangers otherwise


def _time(given: Mapping[str, str], name: str, problems: list[str]) -> float | None:
    text = given.get(name, "")
    if not text:
        return None
    try:
        seconds = parse_rfc3339(text)
        _journal_time(seconds)  # by its zone it may be before the year 1 or after 9999
        return seconds
    except (ValueError, OverflowError):
        problems.append(_invalid(name, text, "invalid time format"))
        return None


def _whole(given: Mapping[str, str], name: str, problems: list[str]) -> int | None:
    text = given.get(name, "")
    if not text:
        return None
    if not _NUMBER.fullmatch(text):
        problems.append(_invalid(name, text, "is not a whole number"))
        return None
    return int(text)


def _journal_time(seconds: float) -> str:
    """Whole seconds. With the zone: the journal takes a time without one for the machine's."""
    return f"{datetime.fromtimestamp(int(seconds), UTC).replace(tzinfo=None).isoformat(sep=' ')} UTC"


def _invalid(path: str, value: Any, detail: str) -> str:
    return f"{path}: Invalid value: {json.dumps(value, ensure_ascii=False)}: {detail}"


def _together(problems: Sequence[str]) -> str:
    return problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
