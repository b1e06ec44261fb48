"""Topologies read from sysfs as some machines have it, and from that of this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.managers.edge.cpu_topology import read_topology
from agent.managers.model.cpus import Cpu, NumaNode
from nodelib.errors import Permanent


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def test_two_sockets_with_threads_and_split_caches(tmp_path: Path) -> None:
    write(tmp_path, cpu__online="0-7")
    for cpu in range(8):
        core, socket = cpu % 4, cpu % 4 // 2
        write(
            tmp_path / f"cpu/cpu{cpu}",
            topology__thread_siblings_list=f"{core},{core + 4}",
            topology__physical_package_id=str(socket),
            cache__index2__level="2",
            cache__index2__shared_cpu_list=f"{core},{core + 4}",
            cache__index3__level="3",
            cache__index3__id=str(socket),
            cache__index3__shared_cpu_list=f"{2 * socket}-{2 * socket + 1},{2 * socket + 4}-{2 * socket + 5}",
        )
    write(tmp_path / "node/node0", cpulist="0-7", meminfo="Node 0 MemTotal:       1024 kB", distance="10 21")
    write(tmp_path / "node/node0/hugepages/hugepages-2048kB", nr_hugepages="3")
    write(tmp_path / "node/node1", cpulist="", meminfo="Node 1 MemTotal:  2 kB", distance="21 10")
    found = read_topology(str(tmp_path))
    assert found.cpus[6] == Cpu(6, core=2, socket=1, numa=0, uncore=1)
    assert (len(found.sockets), len(found.numas), len(found.uncores), found.per_core) == (2, 1, 2, 2)
    assert found.nodes == (
        NumaNode(0, 1 << 20, {2 << 20: 6 << 20}, (10, 21)),
        NumaNode(1, 2048, {}, (21, 10)),
    )


def test_a_kernel_without_numa_nodes_and_with_an_offline_cpu(tmp_path: Path) -> None:
    write(tmp_path, cpu__online="0,2")
    for cpu in (0, 2):
        write(tmp_path / f"cpu/cpu{cpu}", topology__thread_siblings_list="0-3", topology__physical_package_id="-1")
    found = read_topology(str(tmp_path), memory=4096)
    assert found.cpus == (Cpu(0, 0, 0, 0, 0), Cpu(2, 0, 0, 0, 0))
    assert found.nodes == (NumaNode(0, 4096, {}, (10,)),)


def test_unreadable_files_are_an_error(tmp_path: Path) -> None:
    write(tmp_path, cpu__online="many")
    with pytest.raises(Permanent, match="cannot be read"):
        read_topology(str(tmp_path))


def test_this_machine() -> None:
    found = read_topology()
    assert len(found.cpus) == os.cpu_count()
    assert sum(node.memory for node in found.nodes) > 1 << 27
