"""`nodewright install` and `nodewright uninstall`."""

from __future__ import annotations

import asyncio
import os

from cli.errors import need_root
from cli.project import PROJECT
from controlplane.host.work import install as work

# With these the launcher uses an existing interpreter and its packages instead of making an environment.
_INTERPRETER = ("NODEWRIGHT_PYTHON", "PYTHONPATH")


def install(root: str) -> None:
    """Install the daemons on this host, or in the file tree at `root`; they use the interpreter that runs this."""
    need_root("install")
    named = _INTERPRETER if "NODEWRIGHT_PYTHON" in os.environ else ()
    environment = {key: os.environ[key] for key in named if key in os.environ}
    done = asyncio.run(work.install(str(PROJECT), root, environment))
    _show("written", done)
    print("\nkubeadm now finds the agent as `kubelet`. Continue with kubeadm init or kubeadm join.")


def uninstall(root: str) -> None:
    """Remove what install() wrote."""
    need_root("uninstall")
    done = asyncio.run(work.uninstall(root))
    _show("removed", done)
    if not done.files and not done.kept:
        print("Nothing is installed here.")


def _show(word: str, done: work.Done) -> None:
    for path in done.files:
        print(f"{word} {path}")
    for key, value in done.sysctls.items():
        print(f"sysctl {key} = {value}")
    for path in done.kept:
        print(f"kept {path}: it was changed after it was installed")
    for note in done.notes:
        print(f"note: {note}")
