"""What a cluster changes on the machine is recorded first."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane.cluster.edge import state
from controlplane.cluster.work import host_changes
from nodelib.kernel_tunables import KERNEL_TUNABLES


def test_the_machine_s_own_values_are_recorded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second `up` must not record what the first cluster's kubelets have set."""
    monkeypatch.setenv("NODEWRIGHT_STATE", str(tmp_path))
    host_changes.record_kernel_tunables()
    before = {name: Path("/proc/sys", name).read_text().strip() for name in KERNEL_TUNABLES}
    assert state.host_record()["sysctls"] == before
    record = state.host_record()
    record["sysctls"]["kernel/panic"] = "77"
    state.save_host_record(record)
    host_changes.record_kernel_tunables()
    assert state.host_record()["sysctls"]["kernel/panic"] == "77"
