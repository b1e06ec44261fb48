"""The one table of all benchmarks: ours, the peer's, the ratio, the target, met or missed; and its place in the docs.

Each benchmark makes its rows; this module judges and shows them. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_BOTH = ("nodewright", "upstream", "ratio", "target")
HEAD = ("measure", *_BOTH)
SIZED_HEAD = ("mode", "measure", "Services", *_BOTH, "taken")
# The section of `bench services` stands between these lines.
BEGIN, END = "<!-- bench services: written by the command -->", "<!-- end of bench services -->"


@dataclass(frozen=True, slots=True)
class Target:
    """The highest ratio to the peer and the highest value, in the row's unit; None: no such limit.

    `slack` is how far a ratio may exceed its limit: noise, or what two decimals hide.
    """

    ratio: float | None = None
    value: float | None = None
    slack: float = 0.005


@dataclass(frozen=True, slots=True)
class Row:
    """One measure of both makers; None where it was not measured.

    `cut`: whether ours and the peer's measurement was cut short, so that the value is a lower bound. `mode`, `size`
    and `taken` (date and commit) are the columns that SIZED_HEAD has in addition.
    """

    measure: str
    ours: float | None
    peer: float | None
    unit: str
    target: Target = Target()
    cut: tuple[bool, bool] = (False, False)
    mode: str = ""
    size: str = ""
    taken: str = ""

    @property
    def ratio_value(self) -> float | None:
        """Ours divided by the peer's."""
        return self.ours / self.peer if self.ours is not None and self.peer else None

    @property
    def ratio(self) -> str:
        """As the table shows it; a bound where the peer was cut short, nothing where we were."""
        if self.ratio_value is None or self.cut[0]:
            return "-"
        return f"{'≤ ' if self.cut[1] else ''}{self.ratio_value:.2f}x"

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None: there is no target, or not the values to judge it by."""
        judged = []
        if self.target.ratio is not None and self.ratio_value is not None:
            judged.append(self.ratio_value <= self.target.ratio + self.target.slack)
        if self.target.value is not None and self.ours is not None:
            judged.append(self.ours <= self.target.value)
        return all(judged) if judged else None

    @property
    def verdict(self) -> str:
        """The target, and whether it is met."""
        wanted = [f"{self.target.ratio:g}x"] if self.target.ratio is not None else []
        wanted += [f"{self.target.value:g} {self.unit}"] if self.target.value is not None else []
        judged = {None: "", True: ": met", False: ": missed"}[self.met]
        return ", ".join(wanted) + judged if wanted else "-"

    @property
    def cells(self) -> tuple[str, ...]:
        """In the order of HEAD, or of SIZED_HEAD for a row that has a mode."""
        both = (self._value(self.ours, self.cut[0]), self._value(self.peer, self.cut[1]), self.ratio, self.verdict)
        return (self.mode, self.measure, self.size, *both, self.taken) if self.mode else (self.measure, *both)

    def _value(self, value: float | None, cut: bool) -> str:
        return "-" if value is None else f"{'≥ ' if cut else ''}{value:.3g} {self.unit}"


def percentile(values: list[float], share: float) -> float:
    """The nearest-rank percentile; 0 for no values."""
    if not values:
        return 0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def markdown(table: Sequence[Row], heading: str, note: str = "", head: tuple[str, ...] = HEAD) -> str:
    """A section for docs/benchmarks.md."""
    lines = [f"### {heading}", "", *([note, ""] if note else [])]
    lines += [f"| {' | '.join(head)} |", "|" + " --- |" * len(head)]
    lines += [f"| {' | '.join(row.cells)} |" for row in table]
    return "\n".join(lines) + "\n"


def placed(document: str, section: str, what: str) -> str:
    """The document with the section in place of the one whose heading begins with `what`, otherwise at its end.

    What is written below the older table stays: it was written by hand.
    """
    table_or_next = r"(?:(?:^\|[^\n]*\n)+\n*|(?=^#|^<!-- )|\Z)"
    old = re.search(rf"^### {re.escape(what)},.*?{table_or_next}", document, re.MULTILINE | re.DOTALL)
    if old is None:
        return f"{document.rstrip()}\n\n{section}"
    return f"{document[: old.start()]}{section}\n{document[old.end() :]}".rstrip() + "\n"


def placed_between(document: str, section: str) -> str:
    """The document with the section in place of what stood between BEGIN and END, otherwise at its end."""
    framed = f"{BEGIN}\n{section}{END}"
    before, found, rest = document.partition(BEGIN)
    if not found:
        return f"{document.rstrip()}\n\n{framed}\n"
    return f"{before}{framed}{rest.partition(END)[2]}"
