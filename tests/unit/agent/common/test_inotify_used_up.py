"""fs.inotify.max_user_instances is used up, for real: a user of this test's own has taken all of its instances."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.unit.agent.common.no_inotify import SCENES


@pytest.mark.parametrize("scene", sorted(SCENES))
def test_without_inotify_changes_are_still_noticed(scene: str) -> None:
    program = [sys.executable, "-m", "tests.unit.agent.common.no_inotify", scene]
    done = subprocess.run(program, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
