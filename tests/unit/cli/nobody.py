"""The command line as a user without any rights runs it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[3]
_USER = 65534
# The interpreter and its packages may lie where only root can read: they are reached by folders opened as root.
_CODE = f"""
import encodings.idna, importlib.metadata, os, sys
sys.path[:] = [f"/proc/self/fd/{{os.open(path, os.O_RDONLY)}}" for path in sys.path if os.path.isdir(path)]
for found in list(sys.modules.values()):
    if hasattr(found, "__path__"):
        found.__path__ = [f"/proc/self/fd/{{os.open(path, os.O_RDONLY)}}" for path in found.__path__]
os.setgroups([]); os.setgid({_USER}); os.setuid({_USER})
from cli.app import main
main()
"""


@contextlib.contextmanager
def folder_for_all() -> Iterator[Path]:
    """A folder that everyone can enter; those below pytest's own are closed again by every new run of pytest."""
    with tempfile.TemporaryDirectory(prefix="nodewright-test-") as name:
        os.chmod(name, 0o755)
        yield Path(name)


def as_nobody(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("NODEWRIGHT_", "KUBECONFIG"))}
    return subprocess.run(
        [sys.executable, "-c", _CODE, *arguments],
        capture_output=True,
        text=True,
        cwd="/",
        timeout=180,
        env={**kept, "PYTHONPATH": str(PROJECT), "HOME": "/nonexistent", **environment},
    )
