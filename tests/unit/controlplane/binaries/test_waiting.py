"""Who waits for the build of another run can be told to stop."""

from __future__ import annotations

import fcntl
import signal
import subprocess
import sys
from pathlib import Path

from controlplane.binaries.model import TABLE
from controlplane.binaries.work import key_of

NAME = "nodewright-controlplane"
ASK = """
import asyncio, signal, sys
from pathlib import Path
from controlplane.binaries.work import ensure_in_thread
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells start what is in the background without it
asyncio.run(ensure_in_thread(sys.argv[2:], cache_dir=Path(sys.argv[1]), progress=lambda line: print(line, flush=True)))
"""


def test_a_run_that_waits_for_the_build_of_another_ends_at_ctrl_c(tmp_path: Path) -> None:
    folder = tmp_path / "bin" / key_of(TABLE[NAME])
    folder.mkdir(parents=True)
    with (folder / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        argv = [sys.executable, "-c", ASK, str(tmp_path), NAME]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as asking:
            try:
                assert asking.stdout is not None
                assert "another run is building" in asking.stdout.readline()
                asking.send_signal(signal.SIGINT)
                _, error = asking.communicate(timeout=60)
            finally:
                asking.kill()
    assert "KeyboardInterrupt" in error
