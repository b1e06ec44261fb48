"""Logs of daemons that run for months are kept small while they run, not only at their next start."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from controlplane.supervisor.edge.logs import keep_small
from tests.waiting import until_sync


def test_a_program_goes_on_writing(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(handle, b"".join(b"line %06d\n" % number for number in range(1000)))
    assert keep_small(str(path), 120)
    os.write(handle, b"after\n")
    os.close(handle)
    assert path.read_bytes() == b"after\n"
    assert (tmp_path / "a.log.1").read_bytes().endswith(b"line 000999\n")
    assert (tmp_path / "a.log.1").stat().st_size == 120
    assert not keep_small(str(path), 120)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"x" * 1000)
    (tmp_path / "a.log").symlink_to(tmp_path / "other")
    with pytest.raises(OSError):
        keep_small(str(tmp_path / "a.log"), 10)
    assert (tmp_path / "other").stat().st_size == 1000


def test_a_supervisor_rotates_the_log_of_a_running_program(tmp_path: Path) -> None:
    path = tmp_path / "noisy.log"
    # It pauses: on a busy machine a program that never does is always past the limit when somebody looks.
    text = "('x' * 99 + chr(10)) * 1000"
    script = f"import sys, time\nwhile True: sys.stdout.write({text}), sys.stdout.flush(), time.sleep(0.02)"
    program = {"name": "noisy", "argv": [sys.executable, "-c", script], "log": str(path), "env": {}, "stop_timeout": 5}
    (tmp_path / "spec.json").write_text(json.dumps({"programs": [program], "cgroups": [], "namespaces": []}))
    start = (
        "import controlplane.supervisor.work as work, sys\n"
        "work._KEEP_LOG, work._LOOK_AROUND = 1 << 20, 0.05\n"
        f"sys.argv = ['supervisor', {str(tmp_path)!r}]\n"
        "sys.exit(work.main())"
    )
    supervisor = subprocess.Popen([sys.executable, "-c", start], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        until_sync((tmp_path / "noisy.log.1").exists, 60)
        pid = json.loads((tmp_path / "state.json").read_text())["noisy"]["pid"]
        until_sync(lambda: path.stat().st_size < (1 << 20), 60)
        state = json.loads((tmp_path / "state.json").read_text())["noisy"]
        assert (state["pid"], state["starts"]) == (pid, 1), "it was not started again for that"
    finally:
        supervisor.terminate()
        supervisor.wait(60)
        with contextlib.suppress(ProcessLookupError):
            os.kill(json.loads((tmp_path / "state.json").read_text())["noisy"]["pid"] or supervisor.pid, signal.SIGKILL)
