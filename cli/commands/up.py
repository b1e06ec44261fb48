"""`nodewright up`: creates or repairs a cluster, and prints what answered and what to try next."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

from cli.display.steps import Display
from cli.errors import need_root
from cli.project import PROJECT
from controlplane.cluster.model import DEFAULT_NAME, Cluster, Options, in_url
from controlplane.cluster.plan import addons
from controlplane.cluster.work.workloads import DemoAnswer
from controlplane.up.work import Request, up
from nodelib import quantity
from nodelib.clock import SystemClock
from nodelib.errors import Invalid

_LEAST_MEMORY = 512 << 20  # bytes


def run(
    name: str,
    given: dict[str, Any],
    *,
    subnet: str = "",
    images: str = "demo",
    binaries: Path | None = None,
    plain: bool = False,
) -> None:
    """Create or repair the cluster `name`. `given`: the options that the user gave, by name."""
    need_root("up")
    known = {field.name for field in fields(Options)}
    if "memory" in given:
        given = {**given, "memory": memory_size(given["memory"])}
    options = Options(**{key: value for key, value in given.items() if key in known})
    request = Request(
        name=name,
        options=options,
        explicit=frozenset(given),
        subnet=subnet,
        binaries_dir=binaries,
        images=images,
        project=str(PROJECT),
        python=sys.executable,
    )
    display = Display(plain=plain or None)
    with display:
        cluster, sights = asyncio.run(_up(request, display))
    print(report(cluster, sights, display.elapsed))


def memory_size(text: str) -> int:
    """Bytes of a Kubernetes quantity. Raises Invalid for what is none, or too little for a node."""
    try:
        found = quantity.value(text)
    except (Invalid, ValueError) as error:
        raise Invalid("not a quantity", obj=f"--memory {text}", action="Give a size such as 4Gi or 512Mi.") from error
    if found < _LEAST_MEMORY:
        raise Invalid(
            "a node needs 512Mi at least: its daemons alone use about 200Mi",
            obj=f"--memory {text}",
            action="Give a larger size.",
        )
    return found


async def _up(request: Request, display: Display) -> tuple[Cluster, list[DemoAnswer]]:
    return await up(request, display, SystemClock())


def report(cluster: Cluster, sights: list[DemoAnswer], seconds: float) -> str:
    """The last output of `up`: what answered, and what to try next."""
    lines = [f"\nCluster {cluster.name}: {len(cluster.nodes)} nodes Ready, {seconds:.1f} s."]
    for sight in sights:
        lines.append(f"  {sight.way}: {sight.address}")
        lines.append(f"      answered by {', '.join(sight.pods)} on {', '.join(sight.nodes)}")
    option = "" if cluster.name == DEFAULT_NAME else f" --name {cluster.name}"
    lines += [
        "",
        "Try next:",
        f"  ./nodewright kubectl{option} -- get pods -A -o wide",
        f"  export KUBECONFIG=$(./nodewright kubeconfig{option})",
    ]
    if sights:
        lines.append(f"  curl http://{in_url(cluster.nodes[-1].address)}:30080/hostname")
    lines += [f"  {addons.TABLE[name].hint(cluster)}" for name in cluster.options.addon_names]
    lines += [f"  ./nodewright status{option}", f"  ./nodewright down{option}"]
    return "\n".join(lines)
