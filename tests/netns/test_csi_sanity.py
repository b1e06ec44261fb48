"""Upstream's csi-sanity against the driver as a process.

It is not built by any test: `python -m tests.netns.csi_sanity_build` does it, in a minute or two.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from controlplane.cluster.edge.roots import cache_root
from tests.netns.csi_world import may_grow_mounted
from tests.netns.mount_namespace import isolated
from tests.netns.test_csi_daemon import daemon

_PROGRAMS = sorted(Path(cache_root(), "bin").glob("csi-*/csi-sanity"))
pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: loop devices"),
    pytest.mark.skipif(not _PROGRAMS, reason="csi-sanity is not built: python -m tests.netns.csi_sanity_build"),
]
_AT_LEAST = 60  # specs that run; those of calls that the driver does not offer skip themselves
_MIB = 1 << 20
_XFS = "csi.storage.k8s.io/fstype: xfs"
_KINDS = {
    "ext4": ("mount", "{}", 64),
    "block": ("block", "{}", 64),
    "xfs": ("mount", _XFS, 320),
}
# The kernel lets only who has CAP_SYS_RESOURCE grow a mounted ext4; root in some containers lacks it.
_GROWS_MOUNTED = "should work if node-expand is called after node-publish"


@pytest.mark.parametrize("kind", _KINDS)
def test_every_spec_that_is_for_this_driver(tmp_path: Path, kind: str) -> None:
    if kind == "xfs" and shutil.which("mkfs.xfs") is None:
        pytest.skip("needs xfsprogs")
    access, parameters, size = _KINDS[kind]

    @isolated
    def run() -> None:
        with daemon(tmp_path) as one:
            report, given = tmp_path / "report.xml", tmp_path / "parameters.yaml"
            given.write_text(parameters)
            argv = [str(_PROGRAMS[-1]), f"--csi.endpoint=unix://{one.socket}", f"--ginkgo.junit-report={report}"]
            argv += [f"--csi.mountdir={tmp_path}/mount", f"--csi.stagingdir={tmp_path}/stage"]
            argv += [f"--csi.testvolumesize={size * _MIB}", f"--csi.testvolumeexpandsize={2 * size * _MIB}"]
            argv += [f"--csi.testvolumeaccesstype={access}", f"--csi.testvolumeparameters={given}", "--ginkgo.no-color"]
            done = subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False)
            cases = [
                (str(case.get("name")), case.get("status"))
                for case in ElementTree.parse(report).getroot().iter("testcase")
            ]
            failed = [name for name, status in cases if status not in ("passed", "skipped", "pending")]
            if kind == "ext4" and not may_grow_mounted():
                failed = [name for name in failed if _GROWS_MOUNTED not in name]
            assert not failed, f"{failed}\n{done.stdout[-8000:]}"
            assert len([name for name, status in cases if status == "passed"]) >= _AT_LEAST
            assert [os.listdir(tmp_path / "storage" / name) for name in ("snapshots", "volumes")] == [[], []]

    run()
