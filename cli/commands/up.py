"""`nodewright up`: creates or repairs a cluster, and prints what answered and what to try next."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from cli import versions
from cli.display.quiet import note
from cli.display.steps import Display
from cli.errors import need_root
from cli.project import PROJECT, is_checkout
from controlplane.cluster.advice import kubectl_line, line
from controlplane.cluster.edge.roots import cache_root
from controlplane.cluster.model import DEFAULT_NAME, Cluster, Options, in_url
from controlplane.cluster.plan import addons
from controlplane.cluster.plan.addresses import check_name
from controlplane.cluster.work.user_kubeconfig import Outcome
from controlplane.config.edge.sources import config_text
from controlplane.config.model import Wanted
from controlplane.config.plan import read, show
from controlplane.config.plan.contradictions import contradictions
from controlplane.doctor.work import debian_packages
from controlplane.machine.edge import debian
from controlplane.up import plan, together
from controlplane.up.releases import ReleaseChoice
from controlplane.up.request import Request
from controlplane.up.settle import known_to
from controlplane.up.work import Raised, up
from nodelib import quantity
from nodelib.clock import SystemClock
from nodelib.errors import Invalid, WrongUsage
from nodelib.text import counted, visible

_LEAST_MEMORY = 512 << 20  # bytes


@dataclass(frozen=True, slots=True)
class Line:
    """What the command line says beside the name and the options of a cluster.

    `kubeconfig`: the file that gets the cluster's entries, "" for none, None for the one that kubectl reads.
    """

    config: str = ""
    subnet: str = ""
    images: str = ""
    binaries: Path | None = None
    kubeconfig: str | None = None
    release: Path | None = None


def run(name: str, given: dict[str, Any], line: Line | None = None, *, plain: bool = False) -> None:
    """Create or repair a cluster. `name`: "" for the file's or the default; `given`: the options that were given."""
    request = requested(name, given, line or Line())
    need_root("up")
    display = Display(plain=plain or None)
    with display:
        if not is_checkout():  # else the launcher did
            debian.install_missing(debian_packages(str(PROJECT)), display, Path(cache_root(), "debian-packages"))
        raised = asyncio.run(_up(request, display))
    note(report(raised, display.elapsed))


def print_config(name: str, given: dict[str, Any], line: Line) -> None:
    """Print the file that makes the cluster which the same command line would make. Nothing is made."""
    request = requested(name, given, line)
    check_name(request.name)
    known = known_to(request)
    options = plan.merge(request.name, known.options, request.options, request.explicit) if known else request.options
    plan.check_options(options, request.explicit)
    if known:
        plan.check_ranges_kept(known, replace(request.ranges, nodes=request.subnet))
        cluster = replace(known, options=options)
    else:
        cluster = plan.with_ranges(Cluster(request.name, request.subnet or "10.89.0.0/24", options), request.ranges)
        if request.subnet:
            plan.check_overlaps(cluster)
    binaries = str(request.binaries_dir or "")
    images = request.images or cluster.images
    print(show.text(plan.wanted_of(cluster, images, binaries, chosen=bool(known or request.subnet))), end="")


def print_schema() -> None:
    """Print the JSON Schema of the file."""
    print(show.schema(), end="")


def requested(name: str, given: dict[str, Any], line: Line) -> Request:
    """The command line and the file that it names as one request. Raises Invalid for what is wrong in either."""
    if "memory" in given:
        given = {**given, "memory": memory_size(given["memory"])}
    source = read.parse(config_text(line.config), line.config) if line.config else None
    asked = read.wanted(source.values) if source else Wanted()
    members = asked.members[: given["nodes"]] if "nodes" in given else asked.members
    known = {field.name for field in fields(Options)}
    flags = {key: value for key, value in given.items() if key in known}
    asked = replace(asked, options={**asked.options, **flags}, members=members)
    explicit = {*asked.options, *(("members",) if members else ()), *(("custom",) if source else ())}
    options = Options(**asked.options, members=members, custom=asked.custom)
    of_file = frozenset(asked.options.keys() - flags.keys() if source else ())
    if source:
        conflicts = together.in_file(together.conflicts(options, explicit), of_file)
        if wrong := source.errors([*contradictions(asked), *conflicts]):
            raise wrong
    return Request(
        name=name or asked.name or DEFAULT_NAME,
        options=options,
        explicit=frozenset(explicit),
        subnet=line.subnet or asked.ranges.nodes,
        binaries_dir=line.binaries or (Path(asked.binaries) if asked.binaries else None),
        releases=ReleaseChoice(line.release, versions.release(), is_checkout()),
        images=line.images or asked.images,
        project=str(PROJECT),
        python=sys.executable,
        ranges=asked.ranges,
        of_file=of_file,
        environment=os.environ,
        kubeconfig=line.kubeconfig,
        kubeconfig_variable=os.environ.get("KUBECONFIG", ""),
    )


def memory_size(text: str) -> int:
    """Bytes of a Kubernetes quantity. Raises Invalid for what is none, or too little for a node."""
    try:
        found = quantity.value(text)
    except (Invalid, ValueError) as error:
        raise WrongUsage("not a quantity", obj=f"--memory {text}", action="Give a size, as 4Gi or 512Mi.") from error
    if found < _LEAST_MEMORY:
        raise WrongUsage(
            "a node needs 512Mi at least: its daemons alone use about 200Mi",
            obj=f"--memory {text}",
            action="Give a larger size.",
        )
    return found


def kubeconfig_lines(cluster: Cluster, changed: Outcome) -> list[str]:
    """What became of a kubeconfig file."""
    if changed.problem:
        return [f"  warning: kubectl does not know this cluster yet: {visible(changed.problem)}"]
    if changed.current == cluster.context:
        return [f"  kubectl uses it now: context {cluster.context} in {visible(changed.path)}"]
    return [
        f"  kubectl knows it: context {cluster.context} in {visible(changed.path)} (the current one is "
        f"{visible(changed.current)}; `kubectl config use-context {cluster.context}` changes that)"
    ]


def _current(raised: Raised) -> bool:
    return any(one.current == raised.cluster.context for one in raised.kubeconfigs)


async def _up(request: Request, display: Display) -> Raised:
    return await up(request, display, SystemClock())


def _kubectl_hint(raised: Raised) -> str:
    """How to type kubectl alone from now on, by whether there is one and which cluster it uses."""
    name, context = raised.cluster.name, raised.cluster.context
    if shutil.which("kubectl") is None:
        return f"alias kubectl='{line(name, 'kubectl')}'"
    if _current(raised):
        return "kubectl get nodes"
    if any(one.current for one in raised.kubeconfigs):
        return f"kubectl --context {context} get nodes"
    return f"export KUBECONFIG=$({line(name, 'kubeconfig')})"


def report(raised: Raised, seconds: float) -> str:
    """The last output of `up`: what answered, and what to try next."""
    cluster, sights = raised.cluster, raised.answers
    lines = [f"\nCluster {cluster.name}: {counted(len(cluster.nodes), 'node')} Ready, {seconds:.1f} s."]
    for sight in sights:
        lines.append(f"  {sight.way}: {sight.address}")
        lines.append(f"      answered by {', '.join(sight.pods)} on {', '.join(sight.nodes)}")
    lines += [line for one in raised.kubeconfigs for line in kubeconfig_lines(cluster, one)]
    lines += [
        "",
        "Try next:",
        f"  {kubectl_line(cluster.name, 'get', 'pods', '-A', '-o', 'wide')}",
        f"  {_kubectl_hint(raised)}",
    ]
    if sights:
        lines.append(f"  curl http://{in_url(cluster.nodes[-1].address)}:30080/hostname")
    lines += [f"  {addons.TABLE[name].hint(cluster)}" for name in cluster.options.addon_names]
    lines += [f"  {line(cluster.name, 'status')}", f"  {line(cluster.name, 'down')}"]
    return "\n".join(lines)
