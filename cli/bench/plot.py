"""The ratios of a table as an SVG: a bar a measure, upstream's at 1, the target as a mark. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from cli.bench.report import Row

_WIDTH, _LEFT, _RIGHT, _BAR, _TOP = 860, 400, 70, 22, 44
_MOST = 1.5  # ratios beyond are cut: the figure stands beside the bar
_MET, _MISSED = "#2b9a66", "#c0504d"


def ratios(table: Sequence[Row], title: str) -> str:
    """An SVG document; "" when there was no peer."""
    shown = [row for row in table if row.peer]
    if not shown:
        return ""
    height = _TOP + _BAR * len(shown) + 30
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif"'
        ' font-size="12"><rect width="100%" height="100%" fill="white"/>',
        f'<text x="12" y="24" font-size="15">{escape(title)}</text>',
    ]
    for number, row in enumerate(shown):
        out += _bar(row, _TOP + number * _BAR)
    bottom = _TOP + _BAR * len(shown)
    out.append(_rule(_across(1), _TOP - 4, bottom, "#333333", 1.5))
    out.append(f'<text x="{_across(1) - 28:.0f}" y="{bottom + 16}">upstream</text></svg>')
    return "\n".join(out) + "\n"


def _bar(row: Row, top: float) -> list[str]:
    ratio = row.ours / (row.peer or 1)
    colour = _MISSED if row.verdict.endswith("missed") else _MET
    out = [
        f'<text x="{_LEFT - 8}" y="{top + 14}" text-anchor="end">{escape(row.measure)}</text>',
        f'<rect x="{_LEFT}" y="{top + 3}" width="{_across(ratio) - _LEFT:.1f}" height="{_BAR - 7}" fill="{colour}"/>',
        f'<text x="{_across(ratio) + 5:.1f}" y="{top + 14}">{row.ratio}</text>',
    ]
    if row.target.ratio is not None and row.target.ratio != 1:
        out.append(_rule(_across(row.target.ratio), top + 1, top + _BAR - 2, "#e0903c", 2.5))
    return out


def _across(ratio: float) -> float:
    return _LEFT + min(ratio, _MOST) / _MOST * (_WIDTH - _LEFT - _RIGHT)


def _rule(x: float, top: float, bottom: float, colour: str, width: float) -> str:
    return f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}" stroke="{colour}" stroke-width="{width}"/>'
