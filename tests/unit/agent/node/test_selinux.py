"""Whether a machine has SELinux enabled, from files as such a machine has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.common.model.selinux import Selinux
from agent.node.edge.machine import Machine
from agent.node.edge.selinux import selinux

MOUNTED = (
    "21 1 0:19 / /sys rw - sysfs sysfs rw,seclabel\n22 21 0:20 / /sys/fs/selinux rw,nosuid - selinuxfs selinuxfs rw\n"
)
FILES = "system_u:object_r:container_file_t:s0"
CONTEXTS = f"""# comment
process = "system_u:system_r:container_t:s0"
content = "system_u:object_r:virt_var_lib_t:s0"
file = "{FILES}"
ro_file="system_u:object_r:container_ro_file_t:s0"
"""
MACHINE = {
    "proc/self/mountinfo": MOUNTED,
    "proc/self/attr/current": "system_u:system_r:kubelet_t:s0\0",
    "etc/selinux/config": "# SELINUXTYPE=mls\nSELINUX=enforcing\nSELINUXTYPE=targeted\n",
    "etc/selinux/targeted/contexts/lxc_contexts": CONTEXTS,
}


@pytest.mark.parametrize(
    ("change", "found"),
    [
        pytest.param({}, Selinux(FILES), id="enabled"),
        pytest.param({"etc/selinux/config": 'SELINUXTYPE = "targeted"\n'}, Selinux(FILES), id="written otherwise"),
        pytest.param(
            {"usr/share/containers/selinux/contexts": CONTEXTS.replace("container_file_t", "other_t")},
            Selinux("system_u:object_r:other_t:s0"),
            id="contexts of container-selinux",
        ),
        pytest.param({"proc/self/mountinfo": MOUNTED.split("\n")[0]}, None, id="no selinuxfs"),
        pytest.param({"proc/self/mountinfo": MOUNTED.replace("rw,nosuid", "ro")}, None, id="read-only in a container"),
        pytest.param({"proc/self/mountinfo": MOUNTED.replace("selinuxfs rw", "selinuxfs ro")}, None, id="read-only"),
        pytest.param({"proc/self/attr/current": "kernel\0"}, None, id="no policy is loaded"),
        pytest.param({"etc/selinux/config": ""}, Selinux(), id="no type of policy"),
        pytest.param({"etc/selinux/targeted/contexts/lxc_contexts": "a\0b\nfile\n"}, Selinux(), id="no contexts"),
        pytest.param(
            {"etc/selinux/targeted/contexts/lxc_contexts": f"file = {FILES}"}, Selinux(), id="none of processes"
        ),
    ],
)
def test_the_facts_of_a_machine(tmp_path: Path, change: dict[str, str], found: Selinux | None) -> None:
    for name, text in {**MACHINE, **change}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert selinux(str(tmp_path)) == found


def test_the_machine_tells_what_its_kernel_says(tmp_path: Path) -> None:
    has = "selinuxfs" in Path("/proc/self/mountinfo").read_text()
    assert selinux(str(tmp_path)) is None and (Machine(str(tmp_path)).facts().selinux is not None) is has
