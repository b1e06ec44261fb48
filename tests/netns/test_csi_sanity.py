"""Upstream's csi-sanity against the driver as a process.

It is not built by any test: `python -m tests.netns.csi_sanity_build` does it, in a minute or two.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from controlplane.cluster.edge.roots import cache_root
from tests.netns.mount_namespace import isolated
from tests.netns.test_csi_daemon import daemon

_PROGRAMS = sorted(Path(cache_root(), "bin").glob("csi-*/csi-sanity"))
pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: loop devices"),
    pytest.mark.skipif(not _PROGRAMS, reason="csi-sanity is not built: python -m tests.netns.csi_sanity_build"),
]
_AT_LEAST = 50  # specs that run; those of calls that the driver does not offer skip themselves


def test_every_spec_that_is_for_this_driver(tmp_path: Path) -> None:
    @isolated
    def run() -> None:
        with daemon(tmp_path) as one:
            report = tmp_path / "report.xml"
            argv = [str(_PROGRAMS[-1]), f"--csi.endpoint=unix://{one.socket}", f"--csi.junitfile={report}"]
            argv += [f"--csi.mountdir={tmp_path}/mount", f"--csi.stagingdir={tmp_path}/stage"]
            argv += [f"--csi.testvolumesize={64 << 20}", f"--csi.testvolumeexpandsize={128 << 20}"]
            done = subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False)
            results = ElementTree.parse(report).getroot()
            cases = [case for case in results.iter("testcase") if case.find("skipped") is None]
            failed = [case.get("name") for case in cases if case.find("failure") is not None]
            assert done.returncode == 0 and not failed, f"{failed}\n{done.stdout[-8000:]}"
            assert len(cases) >= _AT_LEAST
            print(f"csi-sanity: {len(cases)} passed")
            assert os.listdir(tmp_path / "storage" / "snapshots") == []

    run()
