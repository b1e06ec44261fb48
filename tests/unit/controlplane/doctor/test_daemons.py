"""The daemons of a node are found among all processes, however they were started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from controlplane.doctor.edge.daemons import daemons, namespace

ROOT = Path(__file__).resolve().parents[4]
_NAMED = "from nodelib.daemons.process_name import answer_to; answer_to('{name}', sys.argv[1:])"
_WAIT = "print('there', flush=True); sys.stdin.read()"


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a network namespace")
@pytest.mark.parametrize("name", ["kubelet", "kube-proxy"])
def test_one_that_answers_to_upstreams_name(name: str) -> None:
    script = f"import sys; {_NAMED.format(name=name)}; {_WAIT}"
    argv = ["unshare", "-n", sys.executable, "-c", script, "--config=/etc/x", "--v=2"]
    with subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "there\n"
            found = daemons(namespace(f"/proc/{process.pid}/ns/net"), namespace("/proc/self/ns/mnt"))
            one = found.kubelet if name == "kubelet" else found.proxy
            assert one is not None and (one.pid, one.words) == (process.pid, ("--config=/etc/x", "--v=2"))
        finally:
            process.kill()
