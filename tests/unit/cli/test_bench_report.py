from __future__ import annotations

import pytest

from cli.bench import plot
from cli.bench.report import HEAD, Row, Target, markdown, placed


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        (Row("a", 0.8, 1.0, "s", Target(0.8)), "0.8x: met"),
        (Row("a", 0.9, 1.0, "s", Target(0.8)), "0.8x: missed"),
        (Row("a", 0.1, 1.0, "s", Target(0.2, 0.05)), "0.2x, 0.05 s: missed"),
        (Row("a", 0.9, None, "s", Target(0.8)), "0.8x"),
        (Row("a", 0.9, None, "s", Target(value=1)), "1 s: met"),
        (Row("a", 0.9, 1.0, "s"), "-"),
    ],
)
def test_a_row_says_whether_its_target_is_met(row: Row, verdict: str) -> None:
    assert row.verdict == verdict
    assert len(row.cells) == len(HEAD)


def test_a_section_takes_the_place_of_its_older_one() -> None:
    section = markdown([Row("new", 1, 2, "s")], "Pods, today")
    before = "# B\n\n## Pods, yesterday\n\n| old |\n\n## Pods of others, x\n\nkept\n"
    found = placed(before, section, "Pods")
    assert "old" not in found and "kept" in found and found.index("new") < found.index("Pods of others")
    assert placed(found, section, "Pods") == found
    assert placed("# B\n", section, "Pods").endswith(section)


def test_the_plot_has_a_bar_a_row_that_both_have() -> None:
    drawn = plot.ratios([Row("one & two", 1, 2, "s", Target(0.2)), Row("alone", 1, None, "s")], "title")
    assert "one &amp; two" in drawn and "0.50x" in drawn and "alone" not in drawn
    assert plot.ratios([Row("alone", 1, None, "s")], "title") == ""
