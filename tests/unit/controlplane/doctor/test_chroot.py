"""A chroot holds no node: joining a mount namespace leads out of it, whether or not its / is a mount point."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.command_line import PROJECT

_ASK = "import asyncio; from controlplane.doctor.edge import machine; print(asyncio.run(machine.try_namespaces()))"
_ENTER = 'mount --rbind / "$1"; cd "$1"; set -- chroot "$1"'


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change a root")
@pytest.mark.parametrize(("change", "found"), [("shift; set --", False), (_ENTER, True)])
def test_a_chroot_is_seen(change: str, found: bool, tmp_path: Path) -> None:
    script = f'{change}\nexec "$@" env PYTHONPATH={PROJECT} {sys.executable} -c "{_ASK}"'
    run = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", script, "sh", str(tmp_path)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == str(("", found)), done.stderr
