"""Runs upstream's e2e suite against a cluster that this project did not make, such as one that a node of ours joined.

Nothing is done to its nodes: they pull the images of the suite themselves, or have them.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from controlplane.cluster.advice import advised
from controlplane.cluster.edge.roots import cache_root
from controlplane.machine.edge.locks import directory_lock
from controlplane.progress import Progress
from controlplane.suites.work.conformance import BINARIES, Order, run_suite
from controlplane.suites.work.results import Report, make_folder
from nodelib import command
from nodelib.errors import Invalid, NotFound

_SUITE = tuple(name for name in BINARIES if name != "ctr")
_RELEASE = re.compile(r"v(\d+\.\d+)\.")


async def run_elsewhere(kubeconfig: Path, order: Order, progress: Progress) -> Report:
    """Run the tests with the cluster that `kubeconfig` names. Raises as conformance.run() does, NotFound without the
    file, and Temporary when the cluster does not answer.
    """
    from controlplane.binaries.work import ensure_in_thread

    config = os.path.abspath(kubeconfig)
    if not os.path.exists(config):
        raise NotFound("no such file", obj=config, step="--kubeconfig", action="Name a kubeconfig of the cluster.")
    with progress.step("binaries of the suite") as say:
        cache = Path(cache_root())
        found = await ensure_in_thread(_SUITE, cache_dir=cache, progress=say, binaries_dir=order.binaries_dir)
    release = await _release(str(found.path("kubectl")), config)
    directory = (order.results or Path("conformance-list" if order.dry_run else "conformance")).absolute()
    make_folder(directory)
    binaries = {name: str(found.path(name)) for name in _SUITE}
    with directory_lock(str(directory), holder="run that writes its results there"):
        return await run_suite(config, release, order, progress, binaries, directory)


async def _release(kubectl: str, kubeconfig: str) -> str:
    """The minor version of the cluster's control plane."""
    argv = (kubectl, f"--kubeconfig={kubeconfig}", "version", "-o", "json", "--request-timeout=30s")
    with advised(f"Does the cluster of {kubeconfig} run, and can this machine reach it?"):
        said = (await command.run(argv)).text
    version = str(json.loads(said).get("serverVersion", {}).get("gitVersion", ""))
    found = _RELEASE.match(version)
    if found is None:
        raise Invalid(f"the cluster's version is {version!r}", obj=kubeconfig, step="read the cluster's version")
    return found[1]
