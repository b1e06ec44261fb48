"""In a container doctor sees no process outside of it, but their inotify instances count: for real, as another user."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs users and namespaces of its own")

LIMIT = int(Path("/proc/sys/fs/inotify/max_user_instances").read_text())
FREE = 5
USER = 64321  # nobody else's: root's instances are left alone
HOLD = f"""
import ctypes, os, resource, sys
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
os.setuid({USER})
libc = ctypes.CDLL(None)
assert all(libc.inotify_init1(0) >= 0 for _ in range({LIMIT - FREE}))
print("taken", flush=True)
sys.stdin.read()
"""
LOOK = f"""
import os
from controlplane.doctor.edge import machine
os.setuid({USER})
print(machine._inotify_used({LIMIT}))
"""


@pytest.mark.parametrize(
    ("prefix", "used"),
    [
        pytest.param(["unshare", "--pid", "--fork", "--mount-proc"], LIMIT - FREE, id="in a container"),
        pytest.param(["unshare", "--pid", "--fork", "--mount-proc", "--user", "--map-root-user"], 0, id="its own"),
    ],
)
def test_what_others_have_counts(prefix: list[str], used: int) -> None:
    holder = [sys.executable, "-c", HOLD]
    with subprocess.Popen(holder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "taken\n"
        look = LOOK if used else LOOK.replace(f"os.setuid({USER})", "")
        done = subprocess.run([*prefix, sys.executable, "-c", look], capture_output=True, text=True, timeout=60)
        other.communicate("")
    assert done.stdout.strip() == str(used), done.stderr
