"""Short commands are not kept waiting by the garbage collector, and those that go on leave no garbage behind."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cluster.command_line import PROJECT

_RUN = """
import gc, sys, types

def work():
    for _ in range(int(sys.argv[1])):
        cycle = []
        cycle.append(cycle)
    print(len(gc.get_objects()), gc.get_threshold()[0])

sys.modules["cli.app"] = types.ModuleType("cli.app")
sys.modules["cli.app"].main = work
from cli.__main__ import main
main()
"""


@pytest.mark.parametrize(("cycles", "most", "threshold"), [(20_000, 60_000, 150_000), (1_000_000, 60_000, 700)])
def test_garbage_of_a_command(cycles: int, most: int, threshold: int) -> None:
    run = [sys.executable, "-c", _RUN, str(cycles)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60, check=True, cwd=PROJECT)
    objects, collected_at = map(int, done.stdout.split())
    assert objects < most and collected_at == threshold
