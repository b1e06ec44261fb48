"""The cold sync by number of Services as an SVG, both makers and modes, on logarithmic axes. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cli.bench.services.report import Figure

_WIDTH, _HEIGHT = 760, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 190, 40, 50
_COLOURS = {
    ("iptables", "upstream"): "#c0504d",
    ("nftables", "upstream"): "#e0903c",
    ("iptables", "nodewright"): "#2f6db5",
    ("nftables", "nodewright"): "#2b9a66",
}


def chart(figures: Sequence[Figure], name: str, title: str) -> str:
    """An SVG document of one figure at two endpoints a Service."""
    lines: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for one in figures:
        if one.figure == name and one.endpoints == 2 and one.value > 0:
            lines.setdefault((one.mode, one.maker), []).append((one.services, one.value))
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
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif"'
        ' font-size="12"><rect width="100%" height="100%" fill="white"/>',
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
    """Exponents of ten that hold all values, a little room around them."""
    low, high = math.log10(min(values)), math.log10(max(values))
    room = max((high - low) * 0.08, 0.1)
    return low - room, high + room


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def _text(x: float, y: float, text: str, colour: str = "#333333", size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" font-size="{size}">{text}</text>'
