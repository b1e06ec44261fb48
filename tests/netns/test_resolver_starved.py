"""Pods choose the host names of their probes and hooks: a name server that never answers must not hold the agent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.netns, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]

_SOON = 3.0  # seconds; a silent name takes five at least


def test_names_of_pods_do_not_delay_the_names_of_the_agent(tmp_path: Path) -> None:
    argv = ["unshare", "--net", "--mount", sys.executable, "-m", "tests.netns.silent_dns", str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["own"] < _SOON, found  # the API server's name
    assert found["good"] < _SOON and found["verdict"] == "success", found  # another pod's name
