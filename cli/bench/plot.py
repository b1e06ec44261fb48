"""The two plots of docs/benchmarks.md as SVG documents: ratios to the peer as bars, growth with size as lines. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

from cli.bench.report import Row

_RED, _ORANGE, _BLUE, _GREEN = "#c0504d", "#e0903c", "#2f6db5", "#2b9a66"
_DARK = "#333333"

# --- bars: `bench pods` ---
_BARS_WIDTH, _BARS_LEFT, _BARS_RIGHT, _BAR, _BARS_TOP = 860, 400, 70, 22, 44
_MOST = 1.5  # longer bars are cut: the ratio is written beside the bar


def ratios(table: Sequence[Row], title: str) -> str:
    """A bar for each measure, upstream's at 1, the target as a mark; "" when there was no peer."""
    shown = [row for row in table if row.ratio_value is not None]
    if not shown:
        return ""
    bottom = _BARS_TOP + _BAR * len(shown)
    out = [*_head(_BARS_WIDTH, bottom + 30), f'<text x="12" y="24" font-size="15">{escape(title)}</text>']
    for number, row in enumerate(shown):
        out += _bar(row, _BARS_TOP + number * _BAR)
    out.append(_rule(_across(1), _BARS_TOP - 4, bottom, _DARK, 1.5))
    out.append(f'<text x="{_across(1) - 28:.0f}" y="{bottom + 16}">upstream</text></svg>')
    return "\n".join(out) + "\n"


def _bar(row: Row, top: float) -> list[str]:
    end = _across(row.ratio_value or 0)
    colour = _RED if row.met is False else _GREEN
    out = [
        f'<text x="{_BARS_LEFT - 8}" y="{top + 14}" text-anchor="end">{escape(row.measure)}</text>',
        f'<rect x="{_BARS_LEFT}" y="{top + 3}" width="{end - _BARS_LEFT:.1f}" height="{_BAR - 7}" fill="{colour}"/>',
        f'<text x="{end + 5:.1f}" y="{top + 14}">{row.ratio}</text>',
    ]
    if row.target.ratio is not None and row.target.ratio != 1:
        out.append(_rule(_across(row.target.ratio), top + 1, top + _BAR - 2, _ORANGE, 2.5))
    return out


def _across(ratio: float) -> float:
    return _BARS_LEFT + min(ratio, _MOST) / _MOST * (_BARS_WIDTH - _BARS_LEFT - _BARS_RIGHT)


# --- lines: `bench services`, both axes logarithmic ---
_WIDTH, _HEIGHT = 760, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 190, 40, 50
_COLOURS = {
    ("iptables", "upstream"): _RED,
    ("nftables", "upstream"): _ORANGE,
    ("iptables", "nodewright"): _BLUE,
    ("nftables", "nodewright"): _GREEN,
}


def chart(lines: Mapping[tuple[str, str], Sequence[tuple[float, float]]], title: str) -> str:
    """A line of (Services, seconds) for each mode and maker; "" for no points."""
    points = [point for line in lines.values() for point in line]
    if not points:
        return ""
    x_low, x_high = _span([x for x, _ in points])
    y_low, y_high = _span([y for _, y in points])

    def across(x: float) -> float:
        return _LEFT + (math.log10(x) - x_low) / (x_high - x_low) * (_WIDTH - _LEFT - _RIGHT)

    def up(y: float) -> float:
        return _HEIGHT - _BOTTOM - (math.log10(y) - y_low) / (y_high - y_low) * (_HEIGHT - _TOP - _BOTTOM)

    out = [
        *_head(_WIDTH, _HEIGHT),
        _text(_LEFT, 22, title, size=15),
        _text((_LEFT + _WIDTH - _RIGHT) / 2 - 30, _HEIGHT - 12, "Services"),
        _text(12, _TOP - 12, "seconds"),
    ]
    for power in range(math.ceil(y_low), math.floor(y_high) + 1):
        y = up(10**power)
        out.append(_line(_LEFT, y, _WIDTH - _RIGHT, y, "#dddddd"))
        out.append(_text(14, y + 4, f"{10.0**power:g}"))
    for x in sorted({x for x, _ in points}):
        out.append(_line(across(x), _TOP, across(x), _HEIGHT - _BOTTOM, "#eeeeee"))
        out.append(_text(across(x) - 16, _HEIGHT - _BOTTOM + 18, f"{x:,.0f}"))
    for (mode, maker), line in sorted(lines.items()):
        colour, ordered = _COLOURS.get((mode, maker), "#666666"), sorted(line)
        path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in ordered)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        out += [f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="3.5" fill="{colour}"/>' for x, y in ordered]
        last = ordered[-1]
        out.append(_text(across(last[0]) + 8, up(last[1]) + 4, f"{maker} {mode}: {last[1]:.3g} s", colour))
    return "\n".join([*out, "</svg>"]) + "\n"


def _span(values: list[float]) -> tuple[float, float]:
    """Exponents of ten that hold all values, with a little room around them."""
    low, high = math.log10(min(values)), math.log10(max(values))
    room = max((high - low) * 0.08, 0.1)
    return low - room, high + room


def _head(width: int, height: int) -> list[str]:
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif"'
        ' font-size="12"><rect width="100%" height="100%" fill="white"/>'
    ]


def _rule(x: float, top: float, bottom: float, colour: str, width: float) -> str:
    return f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}" stroke="{colour}" stroke-width="{width}"/>'


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def _text(x: float, y: float, text: str, colour: str = _DARK, size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" font-size="{size}">{text}</text>'
