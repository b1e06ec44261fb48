"""`nodewright install` and `nodewright uninstall`."""

from __future__ import annotations

import asyncio
import os
import shlex

from cli.errors import need_checkout, need_root
from cli.project import PROJECT
from controlplane.host.work import install as work

# With these the launcher uses an existing interpreter and its packages instead of making an environment.
_INTERPRETER = ("NODEWRIGHT_PYTHON", "PYTHONPATH")


def install(root: str) -> None:
    """Install the daemons on this host, or in the file tree at `root`; they use the interpreter that runs this."""
    need_checkout("install")
    need_root("install")
    named = _INTERPRETER if "NODEWRIGHT_PYTHON" in os.environ else ()
    environment = {key: os.environ[key] for key in named if key in os.environ}
    done = asyncio.run(work.install(str(PROJECT), root, environment))
    _show("written", done, root)
    if os.path.abspath(root) == "/":
        print("\nkubeadm now finds the agent as `kubelet`. Continue with kubeadm init or kubeadm join.")
    else:
        print(
            f"\nOnly files below {root} were written. `nodewright uninstall --root {shlex.quote(root)}` removes them."
        )


def uninstall(root: str) -> None:
    """Remove what install() wrote."""
    need_root("uninstall")
    done = asyncio.run(work.uninstall(root))
    _show("removed", done, root)
    if not done.files and not done.kept:
        print("Nothing is installed here." if os.path.abspath(root) == "/" else f"Nothing is installed below {root}.")


def _show(word: str, done: work.Done, root: str) -> None:
    for path in done.files:
        print(f"{word} {os.path.join(root, path.lstrip('/'))}")
    for key, value in done.sysctls.items():
        print(f"sysctl {key} = {value}")
    for path in done.kept:
        print(f"kept {os.path.join(root, path.lstrip('/'))}: it was changed after it was installed")
    for note in done.notes:
        print(f"note: {note}")
