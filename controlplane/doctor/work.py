"""Reads the machine's facts and judges them: `doctor` shows all findings, `up` stops at the fatal ones."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from controlplane.cluster.edge import state
from controlplane.cluster.edge.roots import cache_root, state_root
from controlplane.cluster.model import Options
from controlplane.cluster.plan import components
from controlplane.cluster.work import network
from controlplane.doctor.edge import machine, pod_network
from controlplane.doctor.plan import netcheck
from controlplane.doctor.plan.preflight import Finding, fatal, preflight
from controlplane.machine.edge import namespaces
from nodelib import command
from nodelib.errors import Permanent

PACKAGES_FILE = "packages.txt"


async def examine(project: str, binaries_dir: Path | None = None) -> tuple[Finding, ...]:
    """Check this machine."""
    await machine.load_modules()
    facts = await machine.read_facts(
        state_root=state_root(),
        cache_root=cache_root(),
        built=await asyncio.to_thread(_built, binaries_dir),
        packages=debian_packages(project),
        networks=await asyncio.to_thread(network.networks_in_use),
    )
    return preflight(facts)


async def examine_nodes(name: str) -> tuple[Finding, ...]:
    """Check the pod networks of this machine (as a node of some cluster) and of the nodes of the cluster `name`."""
    places: list[tuple[str, str, str]] = []
    if os.path.exists("/sys/class/net/nw0"):
        places.append(("this machine", "", ""))
    cluster = state.load_readable(name)
    for node in cluster.nodes if cluster else ():
        net = cluster.namespace(node.name, "net") if cluster else ""
        if namespaces.is_bound(net) and cluster:
            places.append((f"{name}/{node.name}", net, cluster.dns_service))
    checked = await asyncio.gather(*(_check_network(*where) for where in places))
    others = [one for one in state.clusters() if one != name]
    names = f"{', '.join(others)} (`./nodewright doctor --name NAME` checks their nodes)" if others else "none"
    return (*(finding for found in checked for finding in found), Finding("other clusters", "ok", names))


async def _check_network(name: str, net: str, dns: str) -> tuple[Finding, ...]:
    argv = [sys.executable, "-I", "-S", pod_network.__file__, dns]
    done = await command.run(namespaces.entered(net, argv) if net else argv, check=False, timeout=60)
    if done.returncode != 0:
        why = done.stderr.decode(errors="replace").strip()[-200:]
        return (Finding(f"{name}: pod network", "warning", f"could not be checked: {why}"),)
    return netcheck.check(netcheck.place(name, json.loads(done.stdout)))


async def refuse_if_fatal(project: str, binaries_dir: Path | None = None) -> None:
    """Raises Permanent that lists every fatal finding with its fix."""
    found = fatal(await examine(project, binaries_dir))
    if found:
        lines = [f"{finding.check}: {finding.found}. Fix: {finding.fix}" for finding in found]
        raise Permanent(
            "\n    ".join(lines), step="preflight", action="Fix these, then check again with `./nodewright doctor`."
        )


def debian_packages(project: str) -> tuple[str, ...]:
    """The names in the launcher's list of packages."""
    path = Path(project, "controlplane", PACKAGES_FILE)
    lines = (line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    return tuple(line for line in lines if line)


def _built(binaries_dir: Path | None) -> bool:
    from controlplane.binaries.model import TABLE, cache_key
    from controlplane.binaries.work import goarch, module_files

    for name in components.needed(Options()):
        binary = TABLE[name]
        folder = Path(cache_root(), "bin", cache_key(binary, module_files(binary.module), goarch()))
        if not (folder / name).exists() and not (binaries_dir and (binaries_dir / name).exists()):
            return False
    return True
