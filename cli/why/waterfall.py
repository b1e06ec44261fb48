"""The waterfall of a pod's start in a terminal: the model is that of the page of `view` (view/plan/life.py). Pure."""

from __future__ import annotations

from collections.abc import Iterator

from cli.why.texts import clock
from nodelib.json_values import Json
from nodelib.text import visible
from view.plan.life import BAD, WAITS

_NAME = 38  # characters of a step's name
_NUMBERS = 23  # characters of the two columns of times
_LEAST = 12  # characters of the longest bar
_SIGNS = {WAITS: "▒", BAD: "▓"}
_GOOD = "█"


def lines(life: Json, width: int, now: float) -> Iterator[str]:
    """`life`: what view.plan.life.life() made; `width` in characters; `now` in wall seconds."""
    bars = [one for one in life["bars"] if one["begin"]]
    room = max(_LEAST, width - _NAME - _NUMBERS)
    begin = min((one["begin"] for one in bars), default=life["begin"])
    end = max((_end(one, now) for one in bars), default=begin)
    yield life["source"]
    if bars:
        yield f"{'STEP':{_NAME}}{'AT':>10}  {'TOOK':>10}  from {clock(begin)}, {max(0.0, end - begin):.3f} s in all"
    for one in bars:
        yield _line(one, begin, max(end - begin, 1e-3), room, now).rstrip()
    if life["left_out"]:
        yield f"and {life['left_out']} more steps"
    reached = [f"{mark['name']} {clock(mark['at'])[:8]}" for mark in life["marks"] if mark["at"]]
    if reached:
        yield "The API's milestones: " + ", ".join(reached)
    for mark in life["marks"]:
        if not mark["at"]:
            yield visible(f"Not yet: {mark['name']}" + (f" ({mark['note']})" if mark["note"] else ""))


def _line(bar: Json, begin: float, whole: float, room: int, now: float) -> str:
    at, took = bar["begin"] - begin, max(0.0, _end(bar, now) - bar["begin"])
    left = min(room - 1, int(at / whole * room))
    length = min(room - left, max(1, round(took / whole * room)))
    name = ("  " if bar["part"] else "") + visible(bar["name"]).replace("\n", " ")
    name = name if len(name) < _NAME else name[: _NAME - 2] + "…"
    note = f"  {visible(bar['note'])}" if bar["note"] else ""
    so_far = "+" if bar["end"] is None else " "
    drawn = " " * left + _SIGNS.get(bar["tone"], _GOOD) * length
    return f"{name:{_NAME}}{at:>8.3f} s  {took:>7.3f} s{so_far} {drawn}{note}"


def _end(bar: Json, now: float) -> float:
    return float(now if bar["end"] is None else bar["end"])
