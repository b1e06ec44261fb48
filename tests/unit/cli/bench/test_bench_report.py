"""The one table and the two plots of all benchmarks."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.bench import plot
from cli.bench.report import BEGIN, END, HEAD, SIZED_HEAD, Row, Target, markdown, placed, placed_between
from cli.bench.services import results
from cli.bench.services.results import Result
from cli.project import PROJECT


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
    before = "# B\n\n### Pods, yesterday\n\n| old |\n\n### Pods of others, x\n\nkept\n"
    found = placed(before, section, "Pods")
    assert "old" not in found and "kept" in found and found.index("new") < found.index("Pods of others")
    assert placed(found, section, "Pods") == found
    assert placed("# B\n", section, "Pods").endswith(section)


def test_what_was_written_below_an_older_table_stays() -> None:
    section = markdown([], "Pods, today", "A note.")
    below = "By hand.\n\n#### Why\n\n| a | b |\n| --- | --- |\n\n### Others\n"
    found = placed(f"# B\n\n### Pods, before\n\nAn older note.\n\n| x |\n| --- |\n| 1 |\n\n{below}", section, "Pods")
    assert found == f"# B\n\n{section}\n{below}"


@pytest.mark.parametrize("what", ["Pods", "CNI plugin"])
def test_the_page_has_a_place_for_what_a_command_writes(what: str) -> None:
    page = (PROJECT / "docs/benchmarks.md").read_text()
    section = markdown([], f"{what}, today")
    written = placed(page, section, what)
    assert section in written and not written.endswith(section)
    assert written.count(f"### {what}, ") == page.count(f"### {what}, ")


def test_the_plot_has_a_bar_a_row_that_both_have() -> None:
    drawn = plot.ratios([Row("one & two", 1, 2, "s", Target(0.2)), Row("alone", 1, None, "s")], "title")
    assert "one &amp; two" in drawn and "0.50x" in drawn and "alone" not in drawn
    assert plot.ratios([Row("alone", 1, None, "s")], "title") == ""


def result(maker: str, value: float, at_least: bool = False, name: str = "cold sync", services: int = 10000) -> Result:
    return Result("nftables", services, 2, name, maker, value, "2026-01-01", "abc", at_least)


@pytest.mark.parametrize(
    ("values", "cells", "met"),
    [
        ((result("nodewright", 1), result("upstream", 10)), ("1 s", "10 s", "0.10x", "0.12x, 1.3 s: met"), True),
        (
            (result("nodewright", 1.25), result("upstream", 10)),
            ("1.25 s", "10 s", "0.12x", "0.12x, 1.3 s: missed"),
            False,
        ),
        (
            (result("nodewright", 1.4), result("upstream", 99)),
            ("1.4 s", "99 s", "0.01x", "0.12x, 1.3 s: missed"),
            False,
        ),
        (
            (result("nodewright", 1), result("upstream", 280, True)),
            ("1 s", "≥ 280 s", "≤ 0.00x", "0.12x, 1.3 s: met"),
            True,
        ),
        (
            (result("nodewright", 280, True), result("upstream", 10)),
            ("≥ 280 s", "10 s", "-", "0.12x, 1.3 s: missed"),
            False,
        ),
        ((result("nodewright", 1),), ("1 s", "-", "-", "0.12x, 1.3 s: met"), True),
        ((result("upstream", 10),), ("-", "10 s", "-", "0.12x, 1.3 s"), None),
        (
            (result("nodewright", 8, name="RSS"), result("upstream", 8.4, name="RSS")),
            ("8 MiB", "8.4 MiB", "0.95x", "1x: met"),
            True,
        ),
        (
            (result("nodewright", 8.4, name="RSS"), result("upstream", 8, name="RSS")),
            ("8.4 MiB", "8 MiB", "1.05x", "1x: met"),
            True,
        ),
        (
            (result("nodewright", 8.5, name="RSS"), result("upstream", 8, name="RSS")),
            ("8.5 MiB", "8 MiB", "1.06x", "1x: missed"),
            False,
        ),
        (
            (result("nodewright", 5, services=20), result("upstream", 8, services=20)),
            ("5 s", "8 s", "0.62x", "-"),
            None,
        ),
    ],
)
def test_a_sized_row_is_judged_by_its_target(
    values: tuple[Result, ...], cells: tuple[str, ...], met: bool | None
) -> None:
    [row] = results.rows(values)
    assert row.cells == ("nftables", values[0].figure, f"{values[0].services:,} x 2", *cells, "2026-01-01 abc")
    assert row.met is met
    assert len(row.cells) == len(SIZED_HEAD)


def test_new_values_replace_older_ones_of_the_same_key() -> None:
    old = [result("upstream", 9), result("nodewright", 3), result("nodewright", 7, name="RSS")]
    found = results.merged(old, [result("nodewright", 1)])
    assert [(one.figure, one.maker, one.value) for one in found] == [
        ("cold sync", "nodewright", 1),
        ("cold sync", "upstream", 9),
        ("RSS", "nodewright", 7),
    ]


def test_kept_values_are_read_back(tmp_path: Path) -> None:
    kept = [result("nodewright", 1), result("upstream", 280, True)]
    results.save(tmp_path / "kept.json", kept)
    assert results.load(tmp_path / "kept.json") == kept
    assert results.load(tmp_path / "none.json") == []


def test_the_sized_section_stays_between_its_markers() -> None:
    section = markdown(results.rows([result("nodewright", 1)]), "Services", "notes", SIZED_HEAD)
    found = placed_between(f"# B\n\n{BEGIN}\nold\n{END}\n\n## After\n", section)
    assert found == f"# B\n\n{BEGIN}\n{section}{END}\n\n## After\n"
    assert placed_between(found, section) == found
    assert placed_between("# B\n", section) == f"# B\n\n{BEGIN}\n{section}{END}\n"


def test_the_chart_has_a_line_for_each_mode_and_maker() -> None:
    values = [
        result(maker, value, services=size)
        for maker in ("nodewright", "upstream")
        for size, value in ((10, 1), (100, 2))
    ]
    drawn = plot.chart(results.curves([*values, result("nodewright", 5, name="RSS")], "cold sync"), "title")
    assert drawn.count("<polyline") == 2 and drawn.count("<circle") == 4
    assert "nodewright nftables: 2 s" in drawn and "upstream nftables: 2 s" in drawn
    assert plot.chart({}, "title") == ""
