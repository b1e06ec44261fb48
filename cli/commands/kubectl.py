"""`nodewright kubectl` and `nodewright kubeconfig`: reach a cluster with kubectl."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

from cli.clusters import find, reachable
from cli.kubectl_words import GLOBAL
from controlplane.cluster.edge.roots import cache_root
from nodelib.errors import WrongUsage

_OURS = ("--name", "--help")


def run(name: str, arguments: list[str]) -> None:
    """Replace this process by kubectl with the cluster's kubeconfig."""
    _refuse_typos(arguments)
    cluster = reachable(name)
    # The cluster's own tools are of its version; another kubectl in PATH may be skewed.
    path = cluster.tools.get("kubectl", "") or _cached()
    environment = {**os.environ, "KUBECONFIG": cluster.admin_kubeconfig}
    environment.pop("PYTHONSAFEPATH", None)  # of the launcher: a plugin may be a script with modules beside it
    os.execve(path, ["kubectl", *arguments], environment)


def kubeconfig(name: str) -> None:
    """Print the path of the kubeconfig."""
    print(find(name).admin_kubeconfig)


def _refuse_typos(arguments: list[str]) -> None:
    """Raises WrongUsage for a leading option that is neither ours nor kubectl's: kubectl would misread what follows."""
    flag = arguments[0].partition("=")[0] if arguments else ""
    if not flag.startswith("--") or flag.removeprefix("--") in GLOBAL:
        return
    near = difflib.get_close_matches(flag, _OURS, n=1)
    raise WrongUsage(
        "unknown option: neither nodewright nor kubectl takes it before the verb",
        obj=flag,
        step="read the options of kubectl",
        action=f"{f'Did you mean {near[0]}? ' if near else ''}`./nodewright kubectl --name NAME VERB ...`",
    )


def _cached() -> str:
    from controlplane.binaries.work import ensure

    return str(ensure(["kubectl"], cache_dir=Path(cache_root()), progress=print).path("kubectl"))
