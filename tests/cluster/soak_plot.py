"""The curves of a soak as an SVG document: `python -m tests.cluster.soak_plot SAMPLES.csv PLOT.svg`.

One small plot for each quantity that test_soak_kills.py samples, a line for each daemon of each node, medians of a
minute. Prints the first and the last ten minutes of each line beside each other.
"""

from __future__ import annotations

import csv
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _GAP = 860, 190, 70, 190, 44, 46
_COLOURS = ("#2f6db5", "#2b9a66", "#c0504d", "#e0903c", "#7a5ea8", "#4bacc6", "#8c8c8c", "#b8860b")
_QUANTITIES = {"rss_bytes": "memory, MiB", "descriptors": "open files", "threads": "threads", "children": "children"}
_MIB = 1 << 20
_EDGE = 10  # minutes at the beginning and at the end that are compared

Lines = Mapping[str, Mapping[int, float]]  # "node daemon" -> minute -> median


def read(rows: Iterable[Mapping[str, str]], quantity: str) -> Lines:
    """The medians of each minute; a line that has no values is left out."""
    found: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row[quantity]:
            scale = _MIB if quantity == "rss_bytes" else 1
            found[f"{row['node']} {row['what']}"][int(float(row["seconds"]) / 60)].append(float(row[quantity]) / scale)
    return {name: {at: statistics.median(values) for at, values in line.items()} for name, line in found.items()}


def compared(lines: Lines) -> list[tuple[str, float, float]]:
    """(line, median of its first minutes, median of its last). The first minute, in which all begins, is left out."""
    found = []
    for name, line in lines.items():
        minutes = sorted(line)[1:]
        first, last = (statistics.median(line[at] for at in part) for part in (minutes[:_EDGE], minutes[-_EDGE:]))
        found.append((name, first, last))
    return found


def drawn(plots: Mapping[str, Lines]) -> str:
    """An SVG document with a plot for each title."""
    height = _TOP + len(plots) * (_HEIGHT + _GAP)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif"'
        ' font-size="12"><rect width="100%" height="100%" fill="white"/>'
    ]
    for number, (title, lines) in enumerate(plots.items()):
        out += _plot(title, lines, _TOP + number * (_HEIGHT + _GAP))
    return "\n".join([*out, "</svg>"]) + "\n"


def _plot(title: str, lines: Lines, top: float) -> list[str]:
    longest = max((at for line in lines.values() for at in line), default=1) or 1
    highest = max((value for line in lines.values() for value in line.values()), default=1) or 1
    right = _WIDTH - _RIGHT

    def place(at: int, value: float) -> str:
        return f"{_LEFT + at / longest * (right - _LEFT):.1f},{top + _HEIGHT * (1 - value / highest):.1f}"

    out = [
        f'<text x="12" y="{top - 10}" font-size="14">{escape(title)}</text>',
        f'<rect x="{_LEFT}" y="{top}" width="{right - _LEFT}" height="{_HEIGHT}" fill="none" stroke="#cccccc"/>',
        f'<text x="{_LEFT - 6}" y="{top + 10}" text-anchor="end">{highest:.0f}</text>',
        f'<text x="{_LEFT - 6}" y="{top + _HEIGHT}" text-anchor="end">0</text>',
        f'<text x="{right}" y="{top + _HEIGHT + 16}" text-anchor="end">{longest} minutes</text>',
    ]
    for number, (name, line) in enumerate(sorted(lines.items())):
        colour = _COLOURS[number % len(_COLOURS)]
        points = " ".join(place(at, value) for at, value in sorted(line.items()))
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        out.append(f'<text x="{right + 8}" y="{top + 14 + 15 * number}" fill="{colour}">{escape(name)}</text>')
    return out


def main(samples: str, plot: str) -> None:
    with open(samples, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    plots = {title: read(rows, quantity) for quantity, title in _QUANTITIES.items()}
    Path(plot).write_text(drawn(plots), encoding="utf-8")
    for title, lines in plots.items():
        for name, first, last in compared(lines):
            print(f"{title:12} {name:24} {first:8.1f} -> {last:8.1f}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
