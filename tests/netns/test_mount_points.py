"""Mount points of other mount namespaces: `down` must not remove directories below them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from controlplane.machine.edge.namespaces import mount_points_in_use

pytestmark = [pytest.mark.netns, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]


def test_a_mount_in_another_namespace_is_seen(tmp_path: Path) -> None:
    script = f"mount -t tmpfs none {tmp_path} && echo up && read end"
    with subprocess.Popen(
        ["unshare", "-m", "sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None and other.stdin is not None
        assert other.stdout.readline() == "up\n"
        assert str(tmp_path) in mount_points_in_use()
        other.stdin.write("\n")
    assert str(tmp_path) not in mount_points_in_use()
