"""Runs upstream's e2e_node.test on a node made for it: containerd, images and a pod network, but no cluster.

The suite brings its own etcd and API server. It starts our kubelet or upstream's; everything else is the same, also the
pod network (the bridge plugin), so that two runs differ only in the kubelet.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from controlplane.cluster.advice import ours
from controlplane.cluster.edge import state
from controlplane.cluster.edge.roots import cache_root, state_root
from controlplane.cluster.model import Cluster, Options
from controlplane.cluster.plan import components
from controlplane.cluster.plan.components import Tools
from controlplane.cluster.plan.node_files import commands_dir
from controlplane.cluster.work import bridge_network, network, nodes
from controlplane.cluster.work.compiled import compile_modules
from controlplane.cluster.work.control_plane import start_unit
from controlplane.cluster.work.down import down
from controlplane.cluster.work.node_images import import_images, name_only
from controlplane.machine.edge import cgroups, files
from controlplane.machine.edge.locks import directory_lock
from controlplane.machine.edge.namespaces import in_cgroups, in_node
from controlplane.machine.edge.streamed import run_lines
from controlplane.progress import Progress
from controlplane.standins import plan as system_bus
from controlplane.suites.plan import node_suite as plan
from controlplane.suites.work.conformance import Watcher, clear_reports, read_report, registry
from controlplane.suites.work.results import Report, make_folder
from controlplane.supervisor.model import Program
from controlplane.up.request import Request
from controlplane.up.settle import settle
from nodelib.clock import Clock
from nodelib.errors import Conflict, Invalid

_T = TypeVar("_T")
_POLL = 1.0  # seconds between checks whether it is this run's turn
_RUNTIME_CGROUP = "/runtime"  # as the node sees it
BINARIES = ("e2e_node.test", "ginkgo", "ctr", "containerd", "containerd-shim-runc-v2", "runc")


@dataclass(frozen=True, slots=True)
class NodeOrder:
    """What to run, on which kubelet ("nodewright" or "upstream"), and where to write the results.

    `beside`: other runs of this machine that say so, too, may run meanwhile, each on a node of its own.
    """

    name: str
    agent: str
    labels: str = ""
    focus: str = ""
    skip: str = ""
    procs: int = 4
    setup: plan.Setup = plan.Setup.WITH_API
    results: Path | None = None
    binaries_dir: Path | None = None
    project: str = ""
    python: str = ""
    timeout: str = "3h"  # ginkgo ends the tests then, and reports
    beside: bool = False


async def run(order: NodeOrder, progress: Progress, clock: Clock) -> Report:
    """Make the node, run the suite, and remove the node in any case.

    Raises NodewrightError when the suite cannot run.
    """
    options = Options(nodes=1, agent=order.agent, uplink=False, demo=False)
    request = Request(order.name, options, frozenset(), project=order.project, python=order.python)
    # One at a time on a machine, if not asked otherwise: tests fill memory and disks, and measure how long things take.
    async with _turn(progress, clock, shared=order.beside):
        if state.exists(order.name):
            raise Invalid(
                "a cluster of that name exists",
                obj=order.name,
                step="make a node for the suite",
                action=f"Run {ours(order.name, 'down')} first, or choose another --name.",
            )
        try:
            with directory_lock(os.path.join(state_root(), order.name)):
                cluster = await _uninterrupted(asyncio.to_thread(settle, request))
                return await _Suite(cluster, order, progress, clock).run()
        finally:
            await down(order.name, progress)


async def list_tests(order: NodeOrder, progress: Progress) -> tuple[str, ...]:
    """Names of the tests that run() would run; makes no node. Raises NodewrightError."""
    from controlplane.binaries.work import ensure_in_thread

    with progress.step("binaries of the suite") as say:
        cache = Path(cache_root())
        found = await ensure_in_thread(
            ("e2e_node.test", "ginkgo"), cache_dir=cache, progress=say, binaries_dir=order.binaries_dir
        )
    chosen = plan.selection(order.labels, order.focus, order.skip, order.setup)
    command = plan.listing(chosen, ginkgo=str(found.path("ginkgo")), suite=str(found.path("e2e_node.test")))
    directory = await asyncio.to_thread(_results_of, order)
    listed: list[str] = []
    with progress.step("list of tests") as say:
        watch = Watcher(say, listed)
        await run_lines(command, log=str(directory / "list.log"), on_line=watch.line, on_text=watch.text)
    return tuple(listed)


def _results_of(order: NodeOrder) -> Path:
    """The folder of the results; not below the node's directory, which is removed with the node."""
    directory = order.results or Path(cache_root(), "conformance", f"{order.name}-{order.agent}")
    make_folder(directory)
    return directory


@contextlib.asynccontextmanager
async def _turn(progress: Progress, clock: Clock, *, shared: bool) -> AsyncIterator[None]:
    """Wait for other runs on this machine; a signal can still interrupt the wait."""
    with contextlib.ExitStack() as stack:
        with progress.step("wait for other runs") as say:
            while not _take_turn(stack, shared=shared):
                say("waiting for another run of the suite on this machine")
                await clock.sleep(_POLL)
        yield


def _take_turn(stack: contextlib.ExitStack, *, shared: bool) -> bool:
    try:
        stack.enter_context(directory_lock(os.path.join(cache_root(), "conformance"), shared=shared))
    except Conflict:
        return False
    return True


async def _uninterrupted(work: Coroutine[Any, Any, _T]) -> _T:
    """Let a cancellation wait for the work: its threads would go on making what is being removed already."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


class _Suite:
    def __init__(self, cluster: Cluster, order: NodeOrder, progress: Progress, clock: Clock) -> None:
        self.cluster, self.order, self.progress, self.clock = cluster, order, progress, clock
        self.node = cluster.nodes[0]
        self.folder = f"{commands_dir(cluster, self.node)}/suite"  # has the same path in the node
        self.tools = Tools({}, order.python, order.project)
        self.trees = cgroups.hierarchies()

    async def run(self) -> Report:
        images = await _uninterrupted(self._prepare())
        directory = _results_of(self.order)
        await asyncio.to_thread(clear_reports, directory)
        order = self.order
        chosen = plan.selection(order.labels, order.focus, order.skip, order.setup)
        command = plan.arguments(
            chosen,
            ginkgo=self.tools.binaries["ginkgo"],
            folder=self.folder,
            results=f"{self.folder}/results",
            procs=order.procs,
            setup=order.setup,
            runtime_cgroup=_RUNTIME_CGROUP,
            timeout=order.timeout,
        )
        unit = cgroups.ensure(self.trees, f"{self.cluster.cgroup}/{self.node.name}/system")
        inside = in_node(self.cluster.namespaces(self.node.name), plan.from_folder(command, self.folder))
        argv = in_cgroups(unit, inside)
        log, began = directory / "e2e.log", time.monotonic()
        with self.progress.step(f"e2e_node suite, kubelet of {self.order.agent}") as say:
            watch = Watcher(say, [])
            async with registry(self.cluster, images):
                status = await run_lines(argv, log=str(log), on_line=watch.line, on_text=watch.text)
        for left in (*Path(self.folder).glob("*.log"), *Path(self.folder, "results").glob("*")):
            if left.is_file() and not left.is_symlink():  # a link of the node leads to a file of this machine
                shutil.copy2(left, directory / left.name)
        return await asyncio.to_thread(read_report, directory, log, {}, time.monotonic() - began, status)

    async def _prepare(self) -> Mapping[str, Path]:
        images = await self._binaries_and_images()
        await self._node(images)
        with self.progress.step("folder of the suite"):
            await asyncio.to_thread(compile_modules, self.order.project)
            await asyncio.to_thread(self._fill_folder)
        return images

    async def _binaries_and_images(self) -> Mapping[str, Path]:
        from controlplane.binaries.work import ensure_in_thread
        from controlplane.images.plan.known import NODE_SUITE
        from controlplane.images.work import binaries_for, ensure_images

        with self.progress.step("binaries and images of the suite") as say:
            names = [*BINARIES, *(["kubelet"] if self.order.agent == "upstream" else [])]
            cache, wanted = Path(cache_root()), (*names, *binaries_for(NODE_SUITE))
            found = await ensure_in_thread(wanted, cache_dir=cache, progress=say, binaries_dir=self.order.binaries_dir)
            self.tools = replace(self.tools, binaries={name: str(found.path(name)) for name in dict.fromkeys(wanted)})
            self.cluster = replace(self.cluster, tools=dict(self.tools.binaries))
            state.save(self.cluster)
            return await asyncio.to_thread(ensure_images, NODE_SUITE, cache_dir=cache, binaries=found, progress=say)

    async def _node(self, images: Mapping[str, Path]) -> None:
        with self.progress.step("node: files, namespaces, containerd, images") as say:
            containerd = Path(self.tools.binaries["containerd"])
            await asyncio.to_thread(nodes.seed_runtime, self.cluster, self.node, images, containerd, say)
            await asyncio.to_thread(nodes.write_files, self.cluster, self.node)
            await network.ensure_network(self.cluster, self.order.project)
            await asyncio.to_thread(bridge_network.install, self.cluster, {self.node.name: plan.POD_CIDR})
            node_cgroup = f"{self.cluster.cgroup}/{self.node.name}"
            own = await asyncio.to_thread(cgroups.ensure, self.trees, node_cgroup + _RUNTIME_CGROUP)
            await asyncio.to_thread(cgroups.count_block_io, own, self.cluster.node_dir(self.node.name))
            seen = [folder.replace(node_cgroup, "", 1) for folder in own]  # the node's cgroup is its root
            runtime = plan.in_own_cgroup(components.runtime(self.cluster, self.node, self.tools), seen)
            programs = (runtime, *await asyncio.to_thread(self._bus))
            await asyncio.to_thread(start_unit, self.cluster, self.node.name, programs, self.order.project)
            await nodes.wait_runtime(self.cluster, self.node, self.clock)
            say(await import_images(self.cluster, self.node, self.tools, images))
            await name_only(self.cluster, self.node, self.tools, plan.NAMED_AFTER, plan.NAMED_ONLY)

    def _bus(self) -> tuple[Program, ...]:
        """The system bus for tests that stop the runtime; without dbus-daemon they fail."""
        daemon = shutil.which("dbus-daemon")
        if daemon is None:
            return ()
        config = f"{self.folder}/bus.conf"
        os.makedirs(self.folder, exist_ok=True)
        files.write(config, system_bus.config(), 0o644)
        return system_bus.programs(
            daemon,
            config,
            self.cluster.unit_dir(self.node.name),
            python=self.order.python,
            environment=self.tools.python_environment(),
            logs=self.cluster.log_dir(self.node.name),
        )

    def _fill_folder(self) -> None:
        os.makedirs(self.folder, exist_ok=True)
        link, kubelet = f"{self.folder}/e2e_node.test", f"{self.folder}/kubelet"
        for path in (link, kubelet):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        os.symlink(self.tools.binaries["e2e_node.test"], link)
        if self.order.agent == "upstream":
            os.symlink(self.tools.binaries["kubelet"], kubelet)
        else:
            command = (self.order.python, "-m", "agent")
            files.write(kubelet, plan.kubelet_script(command, self.tools.python_environment()), 0o755)
        for name in ("bin", "results"):
            os.makedirs(f"{self.folder}/{name}", exist_ok=True)
        unit = self.cluster.unit_dir(self.node.name)
        for name, text in plan.stand_ins(unit, python=self.order.python, project=self.order.project).items():
            files.write(f"{self.folder}/bin/{name}", text, 0o755)
        files.write(f"{self.folder}/base-config.yaml", plan.kubelet_config(), 0o644)
