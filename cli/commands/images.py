"""`nodewright images`: what keeps each image on a node, and what garbage collection removes next."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Sized
from typing import Any

from rich.table import Table

from agent.common.plan.sizes import size_of
from agent.images.model.images import Collected, HeldImage, Hold, HoldReason, ImageReport
from agent.images.plan.image_gc import usage_percent
from agent.images.plan.image_holds import hold_text, to_go
from cli.clusters import find, refuse_if_stopped
from cli.display.terminal import new_console, new_table
from cli.why.sources import SOCKET, asked, sockets
from controlplane.cluster.advice import ours
from controlplane.cluster.edge import state
from controlplane.cluster.model import DEFAULT_NAME
from nodelib import quantity
from nodelib.durations import roughly
from nodelib.errors import Invalid, NotFound, Temporary, WrongUsage
from nodelib.shapes import NUMBER, shaped
from nodelib.text import one_line

_WIDE = 200
_LINE = 4000  # bytes of a printed line
_SHAPE: dict[str, Any] = {
    "node!": str,
    "at!": NUMBER,
    "capacity!": int,
    "available!": int,
    "high!": int,
    "low!": int,
    "to_free!": int,
    "images": [
        {
            "id!": str,
            "names": [str],
            "size!": int,
            "detected!": NUMBER,
            "used!": NUMBER,
            "holds": [{"kind!": str, "who": str}],
        }
    ],
    "last": {"at!": NUMBER, "wanted!": int, "freed!": int, "removed": [str], "problem": str},
}


def run(name: str, node: str, free: str, *, as_json: bool) -> None:
    """Show what keeps each image, or with `free` (a quantity) what would be removed to free that much.

    Raises NotFound (no such node), Invalid (`free`), Temporary when no agent answers.
    """
    wanted = _bytes(free) if free else None
    ways = _chosen(name, node)
    answers = asyncio.run(_asked(ways))
    reports = {one: parse(found) for one, (found, _) in answers.items() if found is not None}
    silent = "; ".join(f"{one}: {why}" for one, (found, why) in answers.items() if found is None)
    if not reports:
        if name != DEFAULT_NAME:
            find(name)  # raises NotFound when there is no such cluster
        action = "Create a cluster with `./nodewright up`; on a node, run this command as root."
        if (cluster := state.load(name)) is not None:
            refuse_if_stopped(cluster)
            action = (
                f"{ours(name, 'status')} shows whether the agents run; {ours(name, 'up')} starts those that do not."
            )
        raise Temporary(silent, obj=name, step="ask for images", action=action)
    if as_json:
        print(json.dumps({one: found for one, (found, _) in answers.items()}, indent=1))
        return
    console, now = new_console(width=_WIDE), time.time()
    for report in reports.values():
        lines = _dry(report, wanted) if wanted is not None else summary(report, now)
        for line in lines:
            console.print(one_line(line, _LINE), soft_wrap=True)
        if wanted is None:
            console.print(_table(report.images, now))
    if silent:
        console.print(one_line(f"No answer from {silent}", _LINE), style="yellow")


def usable(document: Any) -> dict[str, Any] | None:
    """What parse() can read of an answer, None for another one: whoever is root in a node may have sent it."""
    found = shaped(document, _SHAPE)
    if found is None:
        return None
    return {
        **_fields(found, ImageReport),
        "images": [_image(one) for one in found.get("images", [])],
        "last": _fields(found["last"], Collected) if found.get("last") else None,
    }


def _image(found: dict[str, Any]) -> dict[str, Any]:
    holds = [{"who": "", **_fields(hold, Hold)} for hold in found.get("holds", []) if hold["kind"] in set(HoldReason)]
    return {"names": [], **_fields(found, HeldImage), "holds": holds}


def _fields(found: dict[str, Any], kind: type[Any]) -> dict[str, Any]:
    """Without what a newer agent may say besides."""
    return {key: value for key, value in found.items() if key in kind.__dataclass_fields__}


def parse(document: dict[str, Any]) -> ImageReport:
    """Read an agent's answer. Raises KeyError or TypeError for what usable() does not let through."""
    images = tuple(
        HeldImage(**{**one, "names": tuple(one["names"]), "holds": tuple(_hold(hold) for hold in one["holds"])})
        for one in document["images"]
    )
    last = Collected(**document["last"]) if document["last"] else None
    return ImageReport(**{**document, "images": images, "last": last})


def _hold(document: dict[str, Any]) -> Hold:
    return Hold(HoldReason(document["kind"]), document["who"])


def _chosen(name: str, node: str) -> dict[str, str]:
    cluster = state.load(name)
    # Without --name, and no cluster of the default one, this machine's own agent is asked, as of a node that joined.
    if cluster is None and state.clusters() and (name != DEFAULT_NAME or not os.path.exists(SOCKET)):
        find(name)  # raises NotFound, which names the clusters that exist
    ways = sockets(cluster)
    if node and node not in ways:
        raise NotFound("no such node in the cluster", obj=node, action=f"There are: {', '.join(sorted(ways))}.")
    return {node: ways[node]} if node else ways


async def _asked(ways: dict[str, str]) -> dict[str, tuple[Any, str]]:
    found = await asyncio.gather(*(asked(path, "/images") for path in ways.values()))
    return {node: _checked(*one) for node, one in zip(ways, found, strict=True)}


def _checked(found: Any, why: str) -> tuple[Any, str]:
    if found is None:
        return None, why
    known = usable(found)
    return known, "" if known is not None else "its agent answers with no report"


def _bytes(text: str) -> int:
    action = "Give bytes or a quantity such as 5Gi."
    try:
        wanted = int(quantity.parse(text))
    except Invalid as error:
        raise WrongUsage(error.message, obj=f"--free {text}", step="read the command line", action=action) from error
    if wanted <= 0:
        raise WrongUsage("it must be more than 0", obj=f"--free {text}", step="read the command line", action=action)
    return wanted


def summary(report: ImageReport, now: float) -> list[str]:
    """What is on the disk and what a collection would do, in sentences."""
    whole = size_of(sum(one.size for one in report.images))
    free = [one for one in report.images if not one.holds]
    lines = [
        f"{report.node}: {_count(report.images)}, {whole} according to the runtime; "
        f"{len(free)} of them ({size_of(sum(one.size for one in free))}) can be removed",
        f"  {_state(report)}",
    ]
    if report.last is not None:
        last = report.last
        asked_for = f" of {size_of(last.wanted)}" if last.wanted else ""
        problem = f": {last.problem}" if last.problem else ""
        lines.append(
            f"  the last collection, {roughly(now - last.at)} ago, removed {_count(last.removed)} and freed "
            f"{size_of(last.freed)}{asked_for}{problem}"
        )
    return lines


def _count(some: Sized) -> str:
    return f"{len(some)} image{'' if len(some) == 1 else 's'}"


def _state(report: ImageReport) -> str:
    if not report.capacity:
        return "it is not known how full their file system is"
    used = usage_percent(report.capacity, report.available)
    text = f"{used} % of their file system's {size_of(report.capacity)} is used"
    if report.high >= 100:
        return f"{text}; no image is removed to free space (imageGCHighThresholdPercent {report.high})"
    text += f"; a collection starts at {report.high} % and frees space down to {report.low} %"
    if not report.to_free:
        return text
    going, freed = to_go(report.images, report.to_free)
    names = ", ".join(one.name for one in going) or "nothing"
    short = f", which is {size_of(report.to_free - freed)} too little" if freed < report.to_free else ""
    return f"{text}: the next one has to free {size_of(report.to_free)} and removes {names}{short}"


def _dry(report: ImageReport, wanted: int) -> list[str]:
    going, freed = to_go(report.images, wanted)
    word = "enough" if freed >= wanted else f"{size_of(wanted - freed)} too little: the other images are in use"
    lines = [f"{report.node}: to free {size_of(wanted)}, {_count(going)} would be removed, {size_of(freed)} ({word})"]
    return [*lines, *(f"  {one.name}  {size_of(one.size)}" for one in going)]


def _table(images: tuple[HeldImage, ...], now: float) -> Table:
    table = new_table("IMAGE", "SIZE", "LAST USE SEEN", "HELD BY")
    for turn, one in enumerate(images, 1):
        used = f"{roughly(now - one.used)} ago" if one.used else "none"
        if any(hold.kind in (HoldReason.CONTAINER, HoldReason.VOLUME) for hold in one.holds):
            used = "now"
        held = hold_text(one) if one.holds else f"nothing: removed as number {turn}"
        table.add_row(one_line(one.name, _LINE), size_of(one.size), used, one_line(held, _LINE))
    return table
