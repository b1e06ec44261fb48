"""The modules that nodes run, compiled before there is a node."""

from __future__ import annotations

import compileall
import os

_RUN_BY_NODES = ("agent", "cli", "cni", "csi", "loadbalancer", "nodelib", "policy", "proxy")


def compile_modules(project: str) -> None:
    """A node sees them read-only, and would compile them at every start, for which an agent takes three times as long.

    `project`: the folder of the packages.
    """
    for name in _RUN_BY_NODES:
        compileall.compile_dir(os.path.join(project, name), quiet=2)
