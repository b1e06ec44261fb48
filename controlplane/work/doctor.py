"""Gathers the machine's facts and judges them: all for `doctor`, the fatal ones for `up`."""

from __future__ import annotations

import asyncio
from pathlib import Path

from controlplane.edge import machine
from controlplane.model import Options, cache_root, state_root
from controlplane.plan import components
from controlplane.plan.preflight import Finding, fatal, preflight
from controlplane.work import network
from nodelib.errors import Permanent

PACKAGES_FILE = "packages.txt"


async def examine(project: str, binaries_dir: Path | None = None) -> tuple[Finding, ...]:
    """Every check, on this machine, now."""
    await machine.load_modules()
    facts = await machine.look(
        state_root=state_root(),
        cache_root=cache_root(),
        built=await asyncio.to_thread(_built, binaries_dir),
        packages=debian_packages(project),
        networks=await asyncio.to_thread(network.networks_in_use),
    )
    return preflight(facts)


async def refuse_if_fatal(project: str, binaries_dir: Path | None = None) -> None:
    """Raises Permanent that lists every fatal finding with its fix."""
    found = fatal(await examine(project, binaries_dir))
    if found:
        lines = [f"{finding.check}: {finding.found}. Fix: {finding.fix}" for finding in found]
        raise Permanent(
            "\n    ".join(lines), step="preflight", action="Fix these, and look again with `./nodewright doctor`."
        )


def debian_packages(project: str) -> tuple[str, ...]:
    """Names in the launcher's list of packages."""
    path = Path(project, "controlplane", PACKAGES_FILE)
    lines = (line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    return tuple(line for line in lines if line)


def _built(binaries_dir: Path | None) -> bool:
    from controlplane.binaries.ensure import goarch, module_files
    from controlplane.binaries.table import TABLE, cache_key

    for name in components.needed(Options()):
        binary = TABLE[name]
        folder = Path(cache_root(), "bin", cache_key(binary, module_files(binary.module), goarch()))
        if not (folder / name).exists() and not (binaries_dir and (binaries_dir / name).exists()):
            return False
    return True
