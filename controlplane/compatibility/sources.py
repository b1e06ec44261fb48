"""Upstream's sources as Go has fetched them: the archive of a module, which stays when they are emptied."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path

from controlplane.binaries.model import KUBERNETES_VERSION
from controlplane.compatibility.plan.metrics import is_read, metrics_file
from nodelib.errors import Permanent

_MODULE = "k8s.io/kubernetes"


def declared_metrics(cache_dir: Path) -> str:
    """The text of facts/metrics.json. Raises Permanent when the module's archive is not there."""
    downloads = Path(os.environ.get("GOMODCACHE") or cache_dir / "go-mod") / "cache/download"
    archive = downloads / _MODULE / "@v" / f"{KUBERNETES_VERSION}.zip"
    if not archive.exists():
        raise Permanent(
            "the sources of Kubernetes are not there",
            obj=str(archive),
            step="read which metrics the kubelet declares",
            action="Run ./nodewright up once: building upstream's programs fetches them.",
        )
    return metrics_file(KUBERNETES_VERSION, _texts(archive, f"{_MODULE}@{KUBERNETES_VERSION}/", is_read))


def _texts(archive: Path, prefix: str, wanted: Callable[[str], bool]) -> dict[str, str]:
    """By path in the module."""
    with zipfile.ZipFile(archive) as module:
        paths = {name.removeprefix(prefix): name for name in module.namelist()}
        return {path: module.read(name).decode() for path, name in paths.items() if wanted(path)}
