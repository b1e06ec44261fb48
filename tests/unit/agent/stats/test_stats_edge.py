"""Files of cgroups (v1, recorded on a hybrid machine, and v2) and of /proc become stats."""

from __future__ import annotations

import errno
import os
import resource
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from agent.stats.edge import container_details, machine
from agent.stats.edge.cgroups import CgroupReader
from agent.stats.model import Cpu, Interface, Memory, PodCgroup, Pressure, Stall, TreeUsage
from tests.unit.agent.stats.cgroup_files import CONTAINER_ID, POD_UID, V1, V2


def _tree(root: Path, files: dict[str, str], cgroup: str) -> str:
    for name, text in files.items():
        path = root / name.format(cgroup.strip("/"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


def test_v1(tmp_path: Path) -> None:
    reader = CgroupReader(_tree(tmp_path, V1, "/kubepods/pod1"))
    sample = reader.sample("/kubepods/pod1")
    assert sample is not None
    tick = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    assert sample.cpu == Cpu(345899782, 12 * tick, 21 * tick, 7, 2, 1500000)
    files = {"kernel": 131072, "active_file": 5000, "inactive_file": 14400, "dirty": 600, "writeback": 70}
    assert sample.memory == Memory(614400, 600000, 163840, 20480, 4096, 0, 3010560, 0, 4, 145, 1, **files)  # type: ignore[arg-type]  # ints by name
    assert sample.processes == 2


def test_v1_limit(tmp_path: Path) -> None:
    files = {**V1, "memory/{}/memory.stat": "hierarchical_memory_limit 1048576\ntotal_inactive_file 700000\n"}
    sample = CgroupReader(_tree(tmp_path, files, "/a")).sample("/a")
    assert sample is not None
    assert (sample.memory.limit, sample.memory.working_set) == (1048576, 0)


def test_v1_limits_memory_and_swap_together(tmp_path: Path) -> None:
    stat = "hierarchical_memory_limit 1048576\ntotal_inactive_file 0\n"
    files = {**V1, "memory/{}/memory.stat": stat, "memory/{}/memory.memsw.limit_in_bytes": "3145728\n"}
    sample = CgroupReader(_tree(tmp_path, files, "/a")).sample("/a")
    assert sample is not None and sample.memory.swap_limit == 2097152


def test_v1_with_joined_controllers(tmp_path: Path) -> None:
    joined = {
        name.replace("cpuacct/", "cpu,cpuacct/").replace("cpu/", "cpu,cpuacct/"): text for name, text in V1.items()
    }
    sample = CgroupReader(_tree(tmp_path, joined, "/a")).sample("/a")
    assert sample is not None
    assert (sample.cpu.usage, sample.cpu.periods) == (345899782, 7)


def test_v2(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    reader = CgroupReader(_tree(tmp_path, V2, "/kubepods.slice/x"))
    sample = reader.sample("/kubepods.slice/x")
    assert sample is not None
    assert sample.cpu == Cpu(345899000, 120000000, 210000000, 7, 2, 1500000)
    files = {"kernel": 131072, "active_file": 5000, "inactive_file": 14400, "dirty": 600, "writeback": 70}
    reclaim = {"scanned": 80, "stolen": 60, "refaults_anon": 3, "refaults_file": 4}
    expected = Memory(614400, 600000, 163840, 20480, 4096, 4096, 3010560, 0, 4, 11045, 3, swap_limit=1048576)
    assert sample.memory == replace(expected, **files, **reclaim)  # type: ignore[arg-type]  # ints by name
    assert sample.processes == 2


def test_v2_root_has_no_memory_file(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    (tmp_path / "cpu.stat").write_text("usage_usec 5\n")
    sample = CgroupReader(str(tmp_path)).sample("/")
    assert sample is not None
    assert (sample.cpu.usage, sample.memory.usage) == (5000, 0)


@pytest.mark.parametrize("files", [V1, V2], ids=["v1", "v2"])
def test_a_cgroup_that_is_gone(tmp_path: Path, files: dict[str, str]) -> None:
    if files is V2:
        (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    reader = CgroupReader(_tree(tmp_path, files, "/a"))
    assert reader.sample("/b") is None


def test_no_cgroups_mounted(tmp_path: Path) -> None:
    reader = CgroupReader(str(tmp_path))
    assert reader.sample("/a") is None
    assert reader.pods("/kubepods") == {}


_STATIC = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("cgroup", "uid", "container"),
    [
        (f"/kubepods/pod{POD_UID}", POD_UID, CONTAINER_ID),
        (f"/kubepods/burstable/pod{POD_UID}", POD_UID, CONTAINER_ID),
        (f"/kubepods/besteffort/pod{_STATIC}", _STATIC, CONTAINER_ID),
        (
            f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{POD_UID.replace('-', '_')}.slice",
            POD_UID,
            f"cri-containerd-{CONTAINER_ID}.scope",
        ),
        (f"/kubepods.slice/kubepods-pod{POD_UID.replace('-', '_')}.slice", POD_UID, f"crio-{CONTAINER_ID}.scope"),
        (f"/kubepods/burstable/pod{POD_UID}", POD_UID, f"crio-{CONTAINER_ID}"),
    ],
    ids=["guaranteed", "burstable", "static", "systemd burstable", "systemd guaranteed", "CRI-O"],
)
def test_pod_cgroups_of_both_drivers(tmp_path: Path, cgroup: str, uid: str, container: str) -> None:
    root = "/" + cgroup.split("/")[1]
    (tmp_path / "memory" / cgroup.strip("/") / container).mkdir(parents=True)
    for other in ("init.scope", f"crio-conmon-{'0' * 64}", f"crio-conmon-{'0' * 64}.scope"):
        (tmp_path / "memory" / cgroup.strip("/") / other).mkdir()
    found = CgroupReader(str(tmp_path)).pods(root)
    assert found == {uid: PodCgroup(cgroup, {CONTAINER_ID: f"{cgroup}/{container}"})}


_MEMINFO = """MemTotal:       24000000 kB
MemFree:         4000000 kB
Buffers:          100000 kB
Cached:          9000000 kB
Inactive(file):  5000000 kB
AnonPages:       3000000 kB
Mapped:           200000 kB
SwapTotal:       1000000 kB
SwapFree:         900000 kB
"""


def _proc(tmp_path: Path) -> str:
    for name, text in {
        "meminfo": _MEMINFO,
        "vmstat": "pgfault 10\npgmajfault 1\n",
        "stat": "cpu  10 2 3 1000 50 1 4 5 0 0\ncpu0 1 1 1 1\nbtime 1700000000\n",
        "loadavg": "0.1 0.2 0.3 2/328 4711\n",
        "sys/kernel/pid_max": "32768\n",
        "sys/kernel/threads-max": "190000\n",
        "self/net/dev": "Inter-|  Receive\n face |bytes\n"
        "    lo: 100 1 0 0 0 0 0 0 100 1 0 0 0 0 0 0\n  eth0: 500 5 1 2 0 0 0 0 700 7 3 4 0 0 0 0\n",
        "self/net/route": "Iface\tDestination\tGateway\neth0\t000A590A\t00000000\neth0\t00000000\t010A590A\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(tmp_path)


def test_the_machine(tmp_path: Path) -> None:
    proc = _proc(tmp_path)
    memory, capacity, swap = machine.node_memory(proc)
    assert capacity == 24_000_000 * 1024
    assert swap == 1_000_000 * 1024
    assert (memory.usage, memory.working_set) == (20_000_000 * 1024, 15_000_000 * 1024)
    assert (memory.swap, memory.page_faults) == (100_000 * 1024, 10)
    assert machine.node_cpu(proc).usage == 25 * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    assert machine.boot_time(proc) == 1_700_000_000_000_000_000
    assert machine.process_limits(proc) == (32768, 328)
    assert machine.default_interface(proc) == "eth0"
    assert machine.interfaces(proc=proc)[1] == Interface("eth0", 500, 5, 1, 2, 700, 7, 3, 4)
    assert machine.interfaces(4711, proc) == ()


def test_a_pod_that_names_its_links_makes_no_others(tmp_path: Path) -> None:
    """The kernel takes any name without a slash, a colon or what it holds for a blank."""
    path = tmp_path / "self" / "net" / "dev"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"Inter-|  Receive\n face |bytes\na\x1ceth0: 1 2 3 4 0 0 0 0 5 6 7 8 0 0 0 0\n")
    assert machine.interfaces(proc=str(tmp_path)) == (Interface("a\x1ceth0", 1, 2, 3, 4, 5, 6, 7, 8),)


def test_this_machine_answers() -> None:
    memory, capacity, _ = machine.node_memory()
    assert 0 < memory.working_set < capacity
    assert machine.node_cpu().usage > 0
    assert any(entry.name == "lo" for entry in machine.interfaces())
    found = machine.filesystem("/")
    assert found is not None
    assert 0 < found.used <= found.capacity
    assert machine.filesystem("/no/such/path") is None


def test_tree_counts_links_once_and_skips_what_is_gone(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "data").write_bytes(b"x" * 100_000)
    os.link(tmp_path / "sub" / "data", tmp_path / "again")
    (tmp_path / "link").symlink_to("/etc")
    found = machine.tree(str(tmp_path))
    assert (found.inodes, found.unread) == (4, "")
    assert 100_000 <= found.used < 200_000
    assert machine.tree(str(tmp_path / "none")) == TreeUsage(0, 0)


def test_volumes_of(tmp_path: Path) -> None:
    (tmp_path / "u1" / "volumes" / "kubernetes.io~empty-dir" / "cache").mkdir(parents=True)
    assert machine.volumes_of(str(tmp_path), "u1") == [
        ("kubernetes.io~empty-dir", "cache", f"{tmp_path}/u1/volumes/kubernetes.io~empty-dir/cache")
    ]
    assert machine.volumes_of(str(tmp_path), "u2") == []


_HELD = {
    "cpu/{}/cpu.shares": "2\n",
    "cpu/{}/cpu.cfs_period_us": "100000\n",
    "cpu/{}/cpu.cfs_quota_us": "-1\n",
    "memory/{}/memory.memsw.limit_in_bytes": "9223372036854771712\n",
    "memory/{}/memory.failcnt": "4\n",
    "memory/{}/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
    "pids/{}/pids.current": "5\n",
    "pids/{}/pids.max": "max\n",
    "blkio/{}/blkio.throttle.io_service_bytes_recursive": "254:0 Read 8192\n254:0 Write 4096\nTotal 12288\n",
    "blkio/{}/blkio.throttle.io_serviced_recursive": "254:0 Read 2\n254:0 Write 1\nTotal 3\n",
}
_HELD_V2 = {
    "{}/cpu.max": "50000 100000\n",
    "{}/cpu.weight": "1\n",
    "{}/memory.events": "low 0\nhigh 7\nmax 4\noom 2\noom_kill 2\n",
    "{}/pids.current": "5\n",
    "{}/pids.max": "100\n",
    "{}/io.stat": "254:0 rbytes=8192 wbytes=4096 rios=2 wios=1 dbytes=0 dios=0\n",
}


def test_details_v1(tmp_path: Path) -> None:
    # The process is this one, so its own descriptors and limits are expected.
    files = {**_HELD, "memory/{}/cgroup.procs": f"{os.getpid()}\n"}
    with socket.socket():
        found = CgroupReader(_tree(tmp_path, files, "/a")).details("/a")
    assert found is not None
    assert found.file_descriptors > 3
    assert found.sockets >= 1
    assert found.open_files == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert (found.threads, found.threads_max) == (5, 0)
    assert (found.cpu_shares, found.cpu_period, found.cpu_quota) == (2, 100000, 0)
    assert (found.memory_swap_limit, found.memory_max, found.oom_kills) == (0, 4, 2)
    (device,) = found.devices
    assert (device.major, device.minor) == (254, 0)
    assert (device.bytes["Read"], device.operations["Write"]) == (8192, 1)


def test_a_pod_with_many_interfaces_is_not_read_to_the_end(tmp_path: Path) -> None:
    head = "Inter-|   Receive                |  Transmit\n face |bytes packets |bytes packets\n"
    lines = "".join(f"dummy{number}: {' '.join(['7'] * 16)}\n" for number in range(1000))
    for process in ("self", "12"):
        (tmp_path / process / "net").mkdir(parents=True)
        (tmp_path / process / "net" / "dev").write_text(head + "eth0: " + " ".join(["1"] * 16) + "\n" + lines)
    found = machine.interfaces(12, str(tmp_path))
    assert found[0] == Interface("eth0", *[1] * 8) and len(found) == 64
    assert len(machine.interfaces(proc=str(tmp_path))) == 1001, "the node's own are all shown"


def test_processes_that_share_many_descriptors_cost_no_more_than_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod may clone as many processes with one table of a million files as it may have processes."""
    read = 0
    readlink = os.readlink

    def counted(path: str) -> str:
        nonlocal read
        read += 1
        return readlink(path)

    monkeypatch.setattr(container_details, "_MOST_LINKS", 8)
    monkeypatch.setattr(os, "readlink", counted)
    files = {**_HELD, "memory/{}/cgroup.procs": f"{os.getpid()}\n" * 200}
    with socket.socket(), socket.socket(), socket.socket(), socket.socket(), socket.socket(), socket.socket():
        own = len(os.listdir("/proc/self/fd"))
        found = CgroupReader(_tree(tmp_path, files, "/a")).details("/a")
    assert found is not None
    assert read <= 8 + 2  # and the names of two disks
    assert found.file_descriptors >= (200 * (own - 2) if os.stat("/proc/self/fd").st_size else 8)


def test_details_v2(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    # There is no process, so nothing is open.
    reader = CgroupReader(_tree(tmp_path, {**_HELD_V2, "{}/cgroup.procs": ""}, "/a"))
    found = reader.details("/a")
    assert found is not None
    assert (found.file_descriptors, found.open_files) == (0, None)
    assert (found.threads, found.threads_max) == (5, 100)
    assert (found.cpu_shares, found.cpu_period, found.cpu_quota) == (2, 100000, 50000)
    assert (found.memory_high, found.memory_max, found.oom_kills) == (7, 4, 2)
    assert found.devices[0].bytes == {"Read": 8192, "Write": 4096, "Discard": 0}
    assert found.devices[0].operations["Read"] == 2
    assert reader.details("/gone") is None


def test_stalls_v2(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids io\n")
    stalls = "some avg10=1.50 avg60=2.00 avg300=0.25 total=2500000\nfull avg10=0.50 avg60=0.00 avg300=0.00 total=500\n"
    sample = CgroupReader(_tree(tmp_path, {**V2, "{}/io.pressure": stalls}, "/a")).sample("/a")
    assert sample is not None
    assert sample.io == Pressure(Stall(2500000, 1.5, 2.0, 0.25), Stall(500, 0.5, 0.0, 0.0))
    assert sample.cpu.pressure == Pressure()


def test_the_agent_itself() -> None:
    cpu, memory = machine.own_process()
    assert cpu.usage > 0
    assert memory.rss > 1 << 20
    assert memory.page_faults > 1000


def test_a_disk(tmp_path: Path) -> None:
    (tmp_path / "diskstats").write_text(
        "   7       0 loop0 9 0 72 1 18 0 72 16 0 16 32 0 0 0 0 9 15\n"
        " 254       0 vda 5375627 473455 221803704 7216002 3750229 3081727 380317976 6884999 4 1655392 15142861 1 2 3\n"
    )
    found = machine.disk(os.makedev(254, 0), str(tmp_path))
    assert found is not None
    assert (found.reads, found.sectors_written, found.in_progress) == (5375627, 380317976, 4)
    assert (found.busy, found.weighted) == (1655392, 15142861)
    assert machine.disk(os.makedev(0, 45), str(tmp_path)) is None, "an overlay"


def test_a_cgroup_that_is_removed_while_its_details_are_read_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = CgroupReader(_tree(tmp_path, {**V1, "memory/{}/cgroup.procs": ""}, "/kubepods/pod1"))
    assert reader.details("/kubepods/pod1") is not None

    def removed(path: str, **_: object) -> int:
        raise OSError(errno.ENODEV, "No such device", path)

    monkeypatch.setattr(container_details, "number", removed)
    assert reader.details("/kubepods/pod1") is None
