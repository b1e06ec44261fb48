"""docs/mutations.md: which test notices that a feature is gone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from tests.mutations.model import Mutation, Verdict

_ROW = re.compile(r"^\| `([^`]+)` \| (.*) \| `([^`]+)` \| (.*) \|$", re.MULTILINE)
_HEAD = "| id | what is switched off | in | noticed by |\n| --- | --- | --- | --- |\n"
_NOBODY, _NOT_ASKED = "nothing", "not asked yet"


def noticed_by(page: str) -> dict[str, str]:
    """The last column by id, of those that were asked."""
    return {name: last for name, _, _, last in _ROW.findall(page) if last != _NOT_ASKED}


def shown(verdict: Verdict) -> str:
    """The last column for a verdict."""
    if verdict.problem:
        return f"no answer: {verdict.problem.replace('|', '/')}"
    return f"`{verdict.noticed}`" if verdict.noticed else _NOBODY


def rewritten(page: str, table: Sequence[Mutation], fresh: Iterable[Verdict]) -> str:
    """The page with all rows of `table`; those that were not asked now keep their answer."""
    found: Mapping[str, str] = {**noticed_by(page), **{one.mutation.id: shown(one) for one in fresh}}
    rows = [f"| `{one.id}` | {one.feature} | `{one.file}` | {found.get(one.id, _NOT_ASKED)} |" for one in table]
    return page[: page.index(_HEAD)] + _HEAD + "\n".join(rows) + "\n"
