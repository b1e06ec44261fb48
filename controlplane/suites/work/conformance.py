"""Runs upstream's e2e suite against a cluster and reads its report."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from controlplane.cluster.edge.roots import cache_root
from controlplane.cluster.model import RELEASE, Cluster, in_url
from controlplane.cluster.plan.components import Tools
from controlplane.cluster.plan.registries import FOLDER
from controlplane.cluster.work.node_images import import_images
from controlplane.machine.edge import files
from controlplane.machine.edge.locks import directory_lock
from controlplane.machine.edge.streamed import run_lines
from controlplane.progress import Progress
from controlplane.suites.plan import conformance as plan
from controlplane.suites.work.outside import client_from_outside
from controlplane.suites.work.results import Report, make_folder, missing, write

BINARIES = ("e2e.test", "ginkgo", "kubectl", "ctr")
_TIERS = Path(__file__).resolve().parent.parent / "tiers.txt"


@dataclass(frozen=True, slots=True)
class Order:
    """What to run, where to write the results, and a driver for the external storage tests."""

    tier: str
    focus: str = ""
    skip: str = ""
    procs: int = 4
    serial: bool = False
    dry_run: bool = False
    results: Path | None = None
    binaries_dir: Path | None = None
    storage_driver: Path | None = None
    timeout: str = "6h"  # ginkgo ends the tests then, and reports


async def run(cluster: Cluster, order: Order, progress: Progress) -> Report:
    """Run the tests. Raises Temporary when the suite writes no report; its log says why. Raises Conflict
    beside another.
    """
    binaries, images = await _prepare(cluster, order, progress)
    # A list of tests has a folder of its own: its report says of every test that it passed.
    directory = order.results or Path(cluster.dir, "conformance-list" if order.dry_run else "conformance")
    make_folder(directory)
    outside = contextlib.nullcontext() if order.dry_run else client_from_outside(cluster)
    # It would take the place of the registry of a run that is under way.
    served = registry(cluster, {} if order.dry_run else images)
    release, kubeconfig = cluster.options.kubernetes, cluster.admin_kubeconfig
    with directory_lock(str(directory), holder="run that writes its results there"):
        async with served, outside:
            return await run_suite(kubeconfig, release, order, progress, binaries, directory)


async def run_suite(
    kubeconfig: str, release: str, order: Order, progress: Progress, binaries: Mapping[str, str], directory: Path
) -> Report:
    """Run the tests on a cluster that is ready for them, of the minor version `release`. Raises as run() does."""
    await asyncio.to_thread(clear_reports, directory)
    chosen = plan.read_tiers(_TIERS.read_text(encoding="utf-8"))
    selection = plan.select(order.tier, chosen, focus=order.focus, skip=order.skip, serial=order.serial)
    selection = _for_server(selection, release, progress)
    argv = plan.arguments(
        selection,
        ginkgo=binaries["ginkgo"],
        e2e=binaries["e2e.test"],
        kubectl=binaries["kubectl"],
        kubeconfig=kubeconfig,
        results=str(directory),
        procs=order.procs,
        dry_run=order.dry_run,
        storage_driver=str(order.storage_driver.resolve()) if order.storage_driver else "",
        timeout=order.timeout,
    )
    log, began = directory / "e2e.log", time.monotonic()
    listed: list[str] = []
    with progress.step("e2e suite" if not order.dry_run else "list of tests") as say:
        watch = Watcher(say, listed)
        status = await run_lines(argv, log=str(log), on_line=watch.line, on_text=watch.text)
    seconds = time.monotonic() - began
    if order.dry_run:
        return Report((), directory, seconds, status, tuple(listed))
    features = {plan.bare_name(test.name): test.feature for test in chosen}
    return await asyncio.to_thread(read_report, directory, log, features, seconds, status)


def _for_server(selection: plan.Selection, release: str, progress: Progress) -> plan.Selection:
    fitting = plan.for_server(selection, release, RELEASE)
    if fitting != selection:
        with progress.step("tests that are skipped") as say:
            say(f"those that need nodes newer than the control plane, {release}")
    return fitting


@contextlib.asynccontextmanager
async def registry(cluster: Cluster, images: Mapping[str, Path]) -> AsyncIterator[None]:
    """Serve the suite's images from this process, so that nodes can pull them (imagePullPolicy Always)."""
    if not images:
        yield
        return
    from controlplane.images.edge.registry import UPSTREAM_REGISTRIES, catalogue, hosts_toml, serving

    served = await asyncio.to_thread(catalogue, images.values())
    places = [(cluster.node_dir(node.name), registry) for node in cluster.nodes for registry in UPSTREAM_REGISTRIES]
    async with serving(served, cluster.host_address, 0) as port:
        try:
            for own, name in places:
                text = hosts_toml(name, f"http://{in_url(cluster.host_address)}:{port}", fallback=False)
                with files.inside(own, f"{FOLDER}/{name}") as folder:
                    files.write(f"{folder}/hosts.toml", text, 0o644)
            yield
        finally:
            for own, name in places:
                if not Path(own).is_dir():
                    continue
                with files.inside(own, f"{FOLDER}/{name}") as folder:
                    Path(folder, "hosts.toml").unlink(missing_ok=True)


async def _prepare(cluster: Cluster, order: Order, progress: Progress) -> tuple[dict[str, str], Mapping[str, Path]]:
    from controlplane.binaries.work import ensure_in_thread
    from controlplane.images.plan.known import CONFORMANCE
    from controlplane.images.work import binaries_for, ensure_images

    with progress.step("binaries and images of the suite") as say:
        names = BINARIES if order.dry_run else (*BINARIES, *binaries_for(CONFORMANCE))
        cache = Path(cache_root())
        found = await ensure_in_thread(names, cache_dir=cache, progress=say, binaries_dir=order.binaries_dir)
        binaries = {name: str(found.path(name)) for name in BINARIES}
        if order.dry_run:
            return binaries, {}
        images = await asyncio.to_thread(ensure_images, CONFORMANCE, cache_dir=cache, binaries=found, progress=say)
    tools = replace(Tools({}, "", ""), binaries=binaries)
    with progress.step("images on the nodes") as say:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(import_images(cluster, node, tools, images, exactly=True)) for node in cluster.nodes
            ]
        say(", ".join(task.result() for task in tasks))
    return binaries, images


def clear_reports(directory: Path) -> None:
    """Make an empty folder for reports."""
    make_folder(directory)
    for old in (*directory.glob("junit*.xml"), *directory.glob("results.json")):
        old.unlink()


class Watcher:
    """Reads the suite's output: how many tests have finished, and the names that a dry run lists."""

    def __init__(self, say: Callable[[str], None], listed: list[str]) -> None:
        self._say = say
        self._listed = listed
        self._ended = 0
        self._failed = 0
        self._previous_is_rule = False

    def text(self, piece: str) -> None:
        """Count finished tests: ginkgo prints one • for each, on one line until a test fails."""
        ended = piece.count("•")
        if ended:
            self._ended += ended
            failed = f", {self._failed} failed" if self._failed else ""
            self._say(f"{self._ended} tests finished{failed}")

    def line(self, text: str) -> None:
        if "• [FAILED]" in text:
            self._failed += 1
        if text.startswith(("[sig-", "External Storage ")) and self._previous_is_rule:
            self._listed.append(plan.without_labels(text.strip()))
        self._previous_is_rule = text.startswith("------")


def read_report(directory: Path, log: Path, features: dict[str, str], seconds: float, status: int) -> Report:
    """Read the JUnit files and write results.json. Raises Temporary when there are none."""
    reports = sorted(directory.glob("junit*.xml"))
    if not reports:
        lines = log.read_text(errors="replace").strip().splitlines()
        raise missing("report", "e2e.test", status, lines[-4:], log)
    results = tuple(r for path in reports for r in plan.read_junit(path.read_text(errors="replace"), features))
    return write(directory, results, seconds, status)
