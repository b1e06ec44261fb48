"""The Summary object and the metrics texts of a snapshot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agent.stats.model import (
    CgroupSample,
    ContainerDetails,
    ContainerStats,
    Cpu,
    Details,
    Device,
    Disk,
    FsUsage,
    Interface,
    Layer,
    Memory,
    NodeStats,
    PodStats,
    Pressure,
    Snapshot,
    Stall,
    VolumeStats,
)
from agent.stats.plan import resource_metrics as stats_metrics
from agent.stats.plan import summary as stats
from agent.stats.plan.disk_report import DiskPart, disk_report

_AT = 1_767_225_600_000_000_000
_WHEN = "2026-01-01T00:00:00Z"


def _sample(path: str, usage: int = 5_000_000_000, limit: int = 0) -> CgroupSample:
    memory = Memory(usage=1000, working_set=800, rss=300, limit=limit, page_faults=7, major_page_faults=1, swap=9)
    return CgroupSample(path, _AT, Cpu(usage=usage, user=1_000_000_000), memory, 3)


_FS = FsUsage(_AT, capacity=10_000, available=4_000, used=6_000, inodes=100, inodes_free=40, inodes_used=60)
_MAIN = ContainerStats(
    "c1",
    "main",
    "img",
    _AT,
    _sample("/kubepods/podu/c1", limit=2000),
    Layer(_AT, 50, 5),
    FsUsage(_AT, used=7, inodes_used=2),
)
_SANDBOX = ContainerStats("s1", "", "", _AT, _sample("/kubepods/podu/s1"))
_POD = PodStats(
    "u",
    "ns",
    'we"b',
    _AT,
    _sample("/kubepods/podu"),
    (_MAIN,),
    _SANDBOX,
    (Interface("lo"), Interface("eth0", rx_bytes=11, tx_bytes=22)),
    (
        VolumeStats("cache", replace(_FS, used=100, inodes_used=3), ephemeral=True),
        VolumeStats("data", _FS, claim="data-0"),
    ),
    own_files=FsUsage(1, used=1),
)
_NODE = NodeStats(
    "node-1",
    _AT,
    _sample("/"),
    memory_capacity=5000,
    cpus=2,
    interfaces=(Interface("eth0", rx_bytes=1, tx_bytes=2),),
    default_interface="eth0",
    fs=_FS,
    image_fs=_FS,
    max_pid=32768,
    processes=300,
    systems={"kubelet": _sample("kubelet"), "pods": _sample("/kubepods")},
)
_EARLIER = {"/": (_AT - 2_000_000_000, 4_000_000_000), "/kubepods/podu/c1": (_AT - 1_000_000_000, 4_900_000_000)}
_SNAPSHOT = Snapshot(_NODE, (_POD,), _EARLIER)


def test_summary_of_the_node() -> None:
    node = stats.summary(_SNAPSHOT)["node"]
    still = {"total": 0, "avg10": 0.0, "avg60": 0.0, "avg300": 0.0}
    assert node["cpu"] == {
        "time": _WHEN,
        "usageCoreNanoSeconds": 5_000_000_000,
        "usageNanoCores": 500_000_000,
        "psi": {"full": still, "some": still},
    }
    assert node["io"] == {"time": _WHEN, "psi": {"full": still, "some": still}}
    assert node["memory"]["availableBytes"] == 4200
    assert node["network"]["name"] == "eth0"
    assert node["network"]["rxBytes"] == 1
    assert node["fs"]["capacityBytes"] == 10_000
    assert node["runtime"]["imageFs"]["usedBytes"] == 6_000
    assert node["rlimit"] == {"time": _WHEN, "maxpid": 32768, "curproc": 300}
    assert [entry["name"] for entry in node["systemContainers"]] == ["kubelet", "pods"]


@pytest.mark.parametrize(("huge_pages", "available"), [(0, 4200), (1000, 3200), (4500, 0)])
def test_memory_set_aside_for_huge_pages_is_not_available(huge_pages: int, available: int) -> None:
    node = replace(_NODE, huge_pages=huge_pages)
    assert stats.summary(replace(_SNAPSHOT, node=node))["node"]["memory"]["availableBytes"] == available
    assert node.memory_available == available


def test_summary_of_a_pod() -> None:
    pod = stats.summary(_SNAPSHOT)["pods"][0]
    assert pod["podRef"] == {"name": 'we"b', "namespace": "ns", "uid": "u"}
    main = pod["containers"][0]
    assert main["cpu"]["usageNanoCores"] == 100_000_000
    assert main["memory"]["availableBytes"] == 1200
    assert "availableBytes" not in pod["memory"]
    assert main["rootfs"]["usedBytes"] == 50
    assert main["logs"] == {
        "time": _WHEN,
        "availableBytes": 4_000,
        "capacityBytes": 10_000,
        "usedBytes": 7,
        "inodesFree": 40,
        "inodes": 100,
        "inodesUsed": 2,
    }
    assert pod["network"]["interfaces"] == [
        {"name": "eth0", "rxBytes": 11, "rxErrors": 0, "txBytes": 22, "txErrors": 0}
    ]
    assert pod["volume"][1]["pvcRef"] == {"name": "data-0", "namespace": "ns"}
    # layer 50 + log 7 + emptyDir 100 + hosts file 1; the claim is no local ephemeral storage
    assert pod["ephemeral-storage"]["usedBytes"] == 158
    assert pod["process_stats"] == {"process_count": 3}


def test_only_cpu_and_memory() -> None:
    answer = stats.summary(_SNAPSHOT, only_cpu_and_memory=True)
    assert set(answer["node"]) == {"nodeName", "systemContainers", "startTime", "cpu", "memory", "swap"}
    assert set(answer["pods"][0]) == {"podRef", "startTime", "containers", "cpu", "memory", "swap"}
    assert set(answer["pods"][0]["containers"][0]) == {"name", "startTime", "cpu", "memory", "swap"}


def test_no_rate_without_an_earlier_sample_or_after_a_reset() -> None:
    assert "usageNanoCores" not in stats.summary(replace(_SNAPSHOT, earlier={}))["node"]["cpu"]
    reset = {"/": (_AT - 1, 9_000_000_000)}
    assert "usageNanoCores" not in stats.summary(replace(_SNAPSHOT, earlier=reset))["node"]["cpu"]


def test_an_unknown_time_is_null() -> None:
    pod = replace(_POD, started_at=0)
    assert stats.summary(Snapshot(_NODE, (pod,)))["pods"][0]["startTime"] is None


def _parsed(text: bytes) -> dict[str, list[tuple[dict[str, str], float]]]:
    return {
        sample.name: [(entry.labels, entry.value) for entry in family.samples if entry.name == sample.name]
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_resource_metrics() -> None:
    found = _parsed(stats_metrics.resource(_SNAPSHOT))
    owner = {"container": "main", "pod": 'we"b', "namespace": "ns"}
    assert found["container_cpu_usage_seconds_total"] == [(owner, 5.0)]
    assert found["container_memory_working_set_bytes"] == [(owner, 800.0)]
    assert found["container_start_time_seconds"] == [(owner, _AT / 1e9)]
    assert found["pod_memory_working_set_bytes"] == [({"pod": 'we"b', "namespace": "ns"}, 800.0)]
    assert found["node_cpu_usage_seconds_total"] == [({}, 5.0)]
    assert found["node_swap_usage_bytes"] == [({}, 9.0)]
    assert found["resource_scrape_error"] == [({}, 0.0)]
    assert "scrape_error" not in found, "1.37 hides it, and its spec knows all that may be there"


def test_cadvisor_metrics() -> None:
    found = _parsed(stats_metrics.cadvisor(_SNAPSHOT, Details()))
    ids = [labels["id"] for labels, _ in found["container_cpu_usage_seconds_total"]]
    assert ids == ["/", "/kubepods", "/kubepods/podu", "/kubepods/podu/c1", "/kubepods/podu/s1"]
    main = {
        "id": "/kubepods/podu/c1",
        "name": "c1",
        "image": "img",
        "pod": 'we"b',
        "namespace": "ns",
        "container": "main",
    }
    assert ({**main, "cpu": "total"}, 5.0) in found["container_cpu_usage_seconds_total"]
    assert (main, 800.0) in found["container_memory_working_set_bytes"]
    assert (main, 2000.0) in found["container_spec_memory_limit_bytes"]
    received = {labels["id"]: value for labels, value in found["container_network_receive_bytes_total"]}
    assert received == {"/": 1.0, "/kubepods/podu/s1": 11.0}
    assert found["container_fs_usage_bytes"] == [({**main, "device": ""}, 50.0)]
    assert found["machine_cpu_cores"] == [({}, 2.0)]


def test_stalls_are_in_the_summary_and_the_metrics() -> None:
    waited = Pressure(some=Stall(2_500_000, 1.5, 2.0, 0.25), full=Stall(500_000, 0.5, 0.0, 0.0))
    sample = replace(_sample("/kubepods/podu"), io=waited, cpu=replace(_sample("").cpu, pressure=waited))
    snapshot = replace(_SNAPSHOT, pods=(replace(_POD, sample=sample),))
    pod = stats.summary(snapshot)["pods"][0]
    assert pod["io"]["psi"]["some"] == {"total": 2_500_000, "avg10": 1.5, "avg60": 2.0, "avg300": 0.25}
    assert pod["cpu"]["psi"]["full"]["total"] == 500_000
    found = _parsed(stats_metrics.cadvisor(snapshot, Details()))
    assert [value for _, value in found["container_pressure_io_waiting_seconds_total"]] == [2.5]
    assert [value for _, value in found["container_pressure_cpu_stalled_seconds_total"]] == [0.5]
    # Cgroups without stall information have no such samples.
    assert not any(
        name.startswith("container_pressure") for name in _parsed(stats_metrics.cadvisor(_SNAPSHOT, Details()))
    )


def test_what_the_kernel_says_of_a_cgroups_memory() -> None:
    figures = {
        "kernel": "kernel_usage",
        "active_file": "total_active_file_bytes",
        "inactive_file": "total_inactive_file_bytes",
        "dirty": "file_dirty_bytes",
        "writeback": "file_writeback_bytes",
        "scanned": "pgscan_total",
        "stolen": "pgsteal_total",
        "refaults_anon": "workingset_refault_anon_total",
        "refaults_file": "workingset_refault_file_total",
    }
    measured: dict[str, Any] = {field: number for number, field in enumerate(figures, 1)}
    memory = Memory(**measured, swap_limit=99)
    container = replace(_POD.containers[0], sample=replace(_POD.containers[0].sample, memory=memory))
    snapshot = replace(_SNAPSHOT, pods=(replace(_POD, containers=(container,)),))
    found = _parsed(stats_metrics.cadvisor(snapshot, Details()))
    shown = {
        field: next(value for labels, value in found[f"container_memory_{name}"] if labels["container"] == "main")
        for field, name in figures.items()
    }
    assert shown == measured
    owner = {"container": "main", "pod": 'we"b', "namespace": "ns"}
    assert _parsed(stats_metrics.resource(snapshot))["container_swap_limit_bytes"] == [(owner, 99.0)]


def test_details_of_a_container() -> None:
    disk = Device("/dev/vda", 254, 0, {"Read": 8192, "Write": 4096}, {"Read": 2, "Write": 1})
    details = ContainerDetails(
        file_descriptors=12, sockets=3, threads=4, open_files=1024, cpu_shares=2, cpu_period=100000, devices=(disk,)
    )
    found = _parsed(stats_metrics.cadvisor(_SNAPSHOT, Details({"/kubepods/podu/c1": details})))
    for name, value in {
        "file_descriptors": 12,
        "sockets": 3,
        "threads": 4,
        "threads_max": 0,
        "ulimits_soft": 1024,
        "spec_cpu_shares": 2,
        "spec_cpu_period": 100000,
        "fs_reads_total": 2,
        "fs_writes_bytes_total": 4096,
        "oom_events_total": 0,
    }.items():
        assert [value for labels, value in found[f"container_{name}"] if labels["container"] == "main"] == [value], name
    assert "container_spec_cpu_quota" not in found
    operations = {labels["operation"]: labels for labels, _ in found["container_blkio_device_usage_total"]}
    assert {operations["Read"][name] for name in ("device", "major", "minor")} == {"/dev/vda", "254", "0"}


def test_disks_of_the_node() -> None:
    disk = Disk("/dev/vda", 1, 2, 3, 4500, 5, 6, 7, 8500, 9, 10500, 11500)
    found = _parsed(stats_metrics.cadvisor(_SNAPSHOT, Details(disks=((disk, _FS),))))
    whole = {"id": "/", "name": "", "image": "", "pod": "", "namespace": "", "container": "", "device": "/dev/vda"}
    for name, value in {
        "limit_bytes": 10_000,
        "inodes_free": 40,
        "sector_reads_total": 3,
        "read_seconds_total": 4.5,
        "io_current": 9,
        "io_time_weighted_seconds_total": 11.5,
    }.items():
        assert found[f"container_fs_{name}"] == [(whole, value)], name
    assert (whole, 6000.0) in found["container_fs_usage_bytes"]


def test_families_are_written_once_each() -> None:
    for text in (stats_metrics.resource(_SNAPSHOT), stats_metrics.cadvisor(_SNAPSHOT, Details())):
        types = [line for line in text.decode().splitlines() if line.startswith("# TYPE")]
        assert len(types) == len(set(types)) > 5


def test_who_holds_the_disk_is_told_by_pod_and_part_the_most_first() -> None:
    small = replace(_POD, name="small", volumes=(), own_files=None)
    odd = FsUsage(_AT, used=1, unread="permission denied")
    report = disk_report(Snapshot(_NODE, (small, replace(_POD, own_files=odd))))
    assert report.used == 57 + 158 and [one.name for one in report.pods] == ['we"b', "small"]
    assert report.pods[0].parts == (
        DiskPart("own", "", 1, "permission denied"),  # it may be more than all others
        DiskPart("volume", "cache", 100),  # not the claim's, which is perhaps on no disk of this node
        DiskPart("files", "main", 50),
        DiskPart("log", "main", 7),
    )


def test_thousands_of_pods_are_a_short_report_with_the_true_sum() -> None:
    report = disk_report(Snapshot(_NODE, tuple(replace(_POD, name=f"p{at}") for at in range(1000))))
    assert (len(report.pods), report.left_out, report.used) == (200, 800, 158_000)
