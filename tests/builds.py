"""`python -m tests.builds TIER...`: builds what these tiers need of programs and images, in the order of their use.

`nodewright test` runs it beside the tiers, at the lowest priority: the compilers take what the tests leave of the
processors, and a test that needs a program which is not there yet waits for its lock. A step that fails is named and
left: the tests that need it build it themselves, and say why they cannot.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from controlplane.binaries.work import all_there, ensure
from controlplane.cluster.edge.roots import cache_root
from controlplane.cluster.model import Options
from controlplane.cluster.plan import addons, components, storage
from controlplane.compatibility.work import upstream_facts
from controlplane.images.plan.known import CONFORMANCE, DEMO, KUBEADM
from controlplane.images.work import binaries_for, ensure_images, prepare_images
from controlplane.suites.work import conformance
from nodelib.errors import NodewrightError

UNDER_WAY = "NODEWRIGHT_TEST_BUILDS"  # set for the tiers: a test waits for what is being built and skips nothing
_NETNS, _CLUSTER, _SMOKE = "netns", "cluster", "smoke"
_ALL = frozenset((_NETNS, _CLUSTER, _SMOKE))


@dataclass(frozen=True, slots=True)
class Step:
    """Programs and images that are built together. `facts`: also what upstream's modules say of themselves."""

    name: str
    tiers: frozenset[str]
    binaries: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    facts: bool = False


STEPS = (
    Step("what every cluster has", _ALL, components.needed(Options()), DEMO),
    Step("cnitool", frozenset((_NETNS,)), ("cnitool",)),
    Step("CSI's helpers", frozenset((_NETNS, _CLUSTER)), storage.HELPERS),
    Step("upstream's facts", frozenset((_NETNS,)), facts=True),
    Step("programs of single tests", frozenset((_CLUSTER,)), ("kube-proxy", "sample-device-plugin")),
    Step("kubeadm", frozenset((_CLUSTER,)), ("kubeadm",), KUBEADM),
    Step("Traefik", frozenset((_CLUSTER,)), images=addons.TABLE["ingress"].images),
    Step("upstream's suite", frozenset((_SMOKE,)), conformance.BINARIES, CONFORMANCE),
)


def build(tiers: Sequence[str], say: Callable[[str], None]) -> None:
    """Everything that these tiers need and that is not there yet."""
    for step in STEPS:
        if step.tiers.isdisjoint(tiers):
            continue
        began = time.monotonic()
        try:
            _build(step, Path(cache_root()))
        except NodewrightError as error:
            say(f"{step.name}: not built: {error}")
        else:
            say(f"{step.name}: there after {time.monotonic() - began:.0f} s")


def _build(step: Step, cache: Path) -> None:
    names = (*step.binaries, *binaries_for(step.images))
    with ThreadPoolExecutor(max_workers=1) as beside:
        if step.images and not all_there(names, cache_dir=cache):
            beside.submit(_prepare, step.images, cache)
        binaries = ensure(names, cache_dir=cache)
    ensure_images(step.images, cache_dir=cache, binaries=binaries)
    if step.facts:
        upstream_facts(cache, lambda line: None)


def _prepare(images: Sequence[str], cache: Path) -> None:
    """What needs no program of ours, while Go compiles. What fails is tried again where it counts."""
    try:
        prepare_images(images, cache_dir=cache)
    except NodewrightError:
        return


def under_way() -> bool:
    """Whether this run of tests has its programs built beside it."""
    return UNDER_WAY in os.environ


if __name__ == "__main__":
    build(sys.argv[1:], lambda line: print(f"[built beside the tests] {line}", file=sys.stderr, flush=True))
