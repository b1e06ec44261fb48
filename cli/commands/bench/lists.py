"""`nodewright bench lists`: the first list of many Pods, in pages and as the initial events of a watch, in turn."""

from __future__ import annotations

import asyncio
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from cli.bench import lists
from cli.bench.lists import WAYS, Load
from cli.display.steps import Display
from cli.display.terminal import new_console
from cli.errors import need_root
from controlplane.binaries.work import ensure
from controlplane.cluster.edge import lab as edge
from controlplane.cluster.edge.lab import Lab
from controlplane.cluster.edge.roots import cache_root
from nodelib.clock import SystemClock

_ROUNDS = 3


def run(*, sizes: Sequence[int], plain: bool, binaries: Path | None) -> None:
    """Measure and print the table."""
    need_root("bench")
    with Display(plain=plain or None) as display:
        with display.step("binaries") as say:
            paths = ensure(
                ["etcd", "kube-apiserver"], cache_dir=Path(cache_root()), progress=say, binaries_dir=binaries
            )
        edge.enter()
        found = asyncio.run(_measure(sizes, paths.path("etcd").parent, display))
    shown = Table("load", "measure", *WAYS, "ratio")
    for row in lists.rows(found):
        shown.add_row(*row)
    new_console().print(shown)


async def _measure(
    sizes: Sequence[int], binaries: Path, display: Display
) -> dict[tuple[Load, str], list[dict[str, float]]]:
    lab = Lab(Path(tempfile.mkdtemp(prefix="nodewright-bench-")), binaries, SystemClock())
    found = defaultdict[tuple[Load, str], list[dict[str, float]]](list)
    try:
        await lab.prepare()
        for pods in sizes:
            await lists.populate(lab, pods, Path(tempfile.mkdtemp(dir=lab.folder)))
            for load in (Load(pods, 1), Load(pods, 4)):
                with display.step(str(load)) as say:
                    for number in range(_ROUNDS):
                        for way in WAYS if number % 2 else reversed(WAYS):
                            say(f"{way}, {number + 1} of {_ROUNDS}")
                            found[load, way].append(dict(await lists.measure(lab, load, way)))
            await lab.stop_servers()
    finally:
        await lab.close()
    return dict(found)
