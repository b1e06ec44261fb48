"""The versions that `nodewright version` shows. pyproject.toml is the only place where ours is written."""

from __future__ import annotations

import platform
import re
import tomllib
from pathlib import Path

from cli.project import PROJECT
from nodelib.command import run_sync
from nodelib.errors import NodewrightError
from nodelib.version import KUBERNETES_VERSION

_NAME = "nodewright"
_UNKNOWN = "unknown"


def release(project: Path = PROJECT) -> str:
    """Nodewright's version: from pyproject.toml in a checkout, otherwise from the installed distribution."""
    try:
        return str(tomllib.loads((project / "pyproject.toml").read_text())["project"]["version"])
    except FileNotFoundError:
        return _installed()


def _installed() -> str:
    import importlib.metadata  # slow, and of no use in a checkout

    try:
        return importlib.metadata.version(_NAME)
    except importlib.metadata.PackageNotFoundError:
        return _UNKNOWN


def commit(project: Path = PROJECT) -> str:
    """The short commit of the checkout, "" when the project is not a checkout or git is not installed."""
    if not (project / ".git").exists():  # a folder, or a file in a worktree
        return ""
    try:
        done = run_sync(["git", "-C", str(project), "rev-parse", "--short", "HEAD"], check=False)
    except NodewrightError:
        return ""
    return done.text.strip() if done.returncode == 0 else ""


def built(module: str, project: Path = PROJECT) -> str:
    """The version of a Go module that the reference cluster is built from, without its v."""
    asked = re.compile(rf"^\s*(?:require\s+)?{re.escape(module)} v(\S+)", re.MULTILINE)
    for file in sorted((project / "controlplane" / "go").glob("*/go.mod")):
        if found := asked.search(file.read_text()):
            return found[1]
    return _UNKNOWN


def document() -> dict[str, str]:
    """Every version by its name, for scripts."""
    return {
        "nodewright": release(),
        "commit": commit(),
        "kubernetes": KUBERNETES_VERSION.removeprefix("v"),
        "containerd": built("github.com/containerd/containerd/v2"),
        "coredns": built("github.com/coredns/coredns"),
        "python": platform.python_version(),
    }


def lines() -> list[str]:
    """Nodewright with its commit, and its parts: the Kubernetes version it follows, what it builds, Python."""
    found = document()
    at = found["commit"]
    return [
        f"nodewright {found['nodewright']}" + (f" (commit {at})" if at else ""),
        f"Kubernetes {found['kubernetes']}",
        f"containerd {found['containerd']}",
        f"CoreDNS {found['coredns']}",
        f"Python {found['python']}",
    ]
