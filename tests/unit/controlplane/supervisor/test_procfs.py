"""What /proc says of a process."""

from __future__ import annotations

import os
import subprocess
import time

from controlplane.supervisor.edge.procfs import age


def test_the_age_of_a_process() -> None:
    began = time.monotonic()
    child = subprocess.Popen(["sleep", "1000"])
    try:
        assert 0 <= age(child.pid) <= time.monotonic() - began + 1  # the kernel counts in ticks
        assert age(os.getpid()) >= age(child.pid)
    finally:
        child.kill()
        child.wait()
    assert age(child.pid) == 0
