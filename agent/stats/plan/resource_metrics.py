"""/metrics/resource and /metrics/cadvisor as Prometheus text, from one snapshot.

Names, labels and types are upstream's (pkg/kubelet/metrics/collectors/resource_metrics.go and
cAdvisor's metrics/prometheus.go), as far as the kernel has the numbers; cAdvisor's TCP and
per-CPU families are not measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from agent.stats.model import CgroupSample, ContainerStats, Details, Interface, PodStats, Pressure, Snapshot
from agent.stats.plan.container_metrics import families_of
from agent.stats.plan.disk_metrics import disk_families, usage_of
from agent.stats.plan.exposition import Family, Labels, Sample, render

_NANO, _MICRO = 1e9, 1e6
_NOBODY = {"name": "", "image": "", "pod": "", "namespace": "", "container": ""}
_MACHINE_SCRAPE = "1 if there was an error while getting machine metrics, 0 otherwise."
_NO_SWAP = "Reported only on non-windows systems"
_SCRAPE = "1 if there was an error while getting container metrics, 0 otherwise"

Read = Callable[[CgroupSample], float]


def _cpu(sample: CgroupSample) -> float:
    return sample.cpu.usage / _NANO


def _working_set(sample: CgroupSample) -> float:
    return sample.memory.working_set


def _swap(sample: CgroupSample) -> float:
    return sample.memory.swap


_RESOURCE: tuple[tuple[str, str, str, Read], ...] = (
    ("cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed by the {} in core-seconds", _cpu),
    ("memory_working_set_bytes", "gauge", "Current working set of the {} in bytes", _working_set),
    ("swap_usage_bytes", "gauge", f"Current swap usage of the {{}} in bytes. {_NO_SWAP}", _swap),
)
_CGROUP: tuple[tuple[str, str, str, Read], ...] = (
    (
        "cpu_user_seconds_total",
        "counter",
        "Cumulative user cpu time consumed in seconds.",
        lambda at: at.cpu.user / _NANO,
    ),
    (
        "cpu_system_seconds_total",
        "counter",
        "Cumulative system cpu time consumed in seconds.",
        lambda at: at.cpu.system / _NANO,
    ),
    ("cpu_cfs_periods_total", "counter", "Number of elapsed enforcement period intervals.", lambda at: at.cpu.periods),
    (
        "cpu_cfs_throttled_periods_total",
        "counter",
        "Number of throttled period intervals.",
        lambda at: at.cpu.throttled_periods,
    ),
    (
        "cpu_cfs_throttled_seconds_total",
        "counter",
        "Total time duration the container has been throttled.",
        lambda at: at.cpu.throttled / _NANO,
    ),
    (
        "memory_usage_bytes",
        "gauge",
        "Current memory usage in bytes, including all memory regardless of when it was accessed",
        lambda at: at.memory.usage,
    ),
    ("memory_working_set_bytes", "gauge", "Current working set in bytes.", _working_set),
    ("memory_rss", "gauge", "Size of RSS in bytes.", lambda at: at.memory.rss),
    ("memory_cache", "gauge", "Number of bytes of page cache memory.", lambda at: at.memory.cache),
    ("memory_mapped_file", "gauge", "Size of memory mapped files in bytes.", lambda at: at.memory.mapped_file),
    ("memory_swap", "gauge", "Container swap usage in bytes.", _swap),
    ("memory_kernel_usage", "gauge", "Size of kernel memory allocated in bytes.", lambda at: at.memory.kernel),
    (
        "memory_total_active_file_bytes",
        "gauge",
        "Current total active file in bytes.",
        lambda at: at.memory.active_file,
    ),
    (
        "memory_total_inactive_file_bytes",
        "gauge",
        "Current total inactive file in bytes.",
        lambda at: at.memory.inactive_file,
    ),
    (
        "memory_file_dirty_bytes",
        "gauge",
        "Number of bytes of file cache that has been modified but not yet written back to disk.",
        lambda at: at.memory.dirty,
    ),
    (
        "memory_file_writeback_bytes",
        "gauge",
        "Number of bytes of file cache that is currently being written back to disk.",
        lambda at: at.memory.writeback,
    ),
    (
        "memory_pgscan_total",
        "counter",
        "Cumulative number of pages scanned by the page reclaim algorithm.",
        lambda at: at.memory.scanned,
    ),
    (
        "memory_pgsteal_total",
        "counter",
        "Cumulative number of pages reclaimed by the page reclaim algorithm.",
        lambda at: at.memory.stolen,
    ),
    (
        "memory_workingset_refault_anon_total",
        "counter",
        "Cumulative number of refaults of previously evicted anonymous pages.",
        lambda at: at.memory.refaults_anon,
    ),
    (
        "memory_workingset_refault_file_total",
        "counter",
        "Cumulative number of refaults of previously evicted file pages.",
        lambda at: at.memory.refaults_file,
    ),
    ("memory_max_usage_bytes", "gauge", "Maximum memory usage recorded in bytes", lambda at: at.memory.max_usage),
    ("memory_failcnt", "counter", "Number of memory usage hits limits", lambda at: at.memory.fail_count),
    ("processes", "gauge", "Number of processes running inside the container.", lambda at: at.processes),
    ("spec_memory_limit_bytes", "gauge", "Memory limit for the container.", lambda at: at.memory.limit),
    ("last_seen", "gauge", "Last time a container was seen by the exporter", lambda at: at.at // 1_000_000_000),
)
_PRESSURE: tuple[tuple[str, Callable[[CgroupSample], Pressure]], ...] = (
    ("CPU", lambda at: at.cpu.pressure),
    ("memory", lambda at: at.memory.pressure),
    ("IO", lambda at: at.io),
)
_STALLS: tuple[tuple[str, str, Callable[[Pressure], int]], ...] = (
    ("stalled", "no tasks in the container could make progress", lambda at: at.full.total),
    ("waiting", "tasks in the container have waited", lambda at: at.some.total),
)
_INTERFACE: tuple[tuple[str, str, Callable[[Interface], int]], ...] = (
    ("receive_bytes", "bytes received", lambda at: at.rx_bytes),
    ("receive_packets", "packets received", lambda at: at.rx_packets),
    ("receive_errors", "errors encountered while receiving", lambda at: at.rx_errors),
    ("receive_packets_dropped", "packets dropped while receiving", lambda at: at.rx_dropped),
    ("transmit_bytes", "bytes transmitted", lambda at: at.tx_bytes),
    ("transmit_packets", "packets transmitted", lambda at: at.tx_packets),
    ("transmit_errors", "errors encountered while transmitting", lambda at: at.tx_errors),
    ("transmit_packets_dropped", "packets dropped while transmitting", lambda at: at.tx_dropped),
)


def resource(snapshot: Snapshot) -> bytes:
    """CPU and memory of node, pods and containers: what metrics-server and the autoscalers read."""
    pods = snapshot.pods
    containers = [(_of(pod, entry), entry) for pod in pods for entry in pod.containers]
    owners: tuple[tuple[str, list[tuple[Labels, CgroupSample]]], ...] = (
        ("container", [(labels, entry.sample) for labels, entry in containers]),
        ("node", [({}, snapshot.node.sample)]),
        ("pod", [(_pod(pod), pod.sample) for pod in pods]),
    )
    families = [
        Family(f"{owner}_{name}", kind, text.format(owner), [_at(labels, sample, read) for labels, sample in samples])
        for owner, samples in owners
        for name, kind, text, read in _RESOURCE
    ]
    started: list[Sample] = [
        (labels, entry.started_at / _NANO, None) for labels, entry in containers if entry.started_at
    ]
    families += [
        Family(
            "container_start_time_seconds", "gauge", "Start time of the container since unix epoch in seconds", started
        ),
        Family(
            "container_swap_limit_bytes",
            "gauge",
            f"Current amount of the container swap limit in bytes. {_NO_SWAP}",
            [_at(labels, entry.sample, lambda at: at.memory.swap_limit) for labels, entry in containers],
        ),
        Family("resource_scrape_error", "gauge", _SCRAPE, [({}, 0, None)]),
    ]
    return render(families)


def cadvisor(snapshot: Snapshot, details: Details) -> bytes:
    """Figures of each cgroup, labelled with the pod and container that it belongs to. `details`: of its cgroups."""
    groups = list(_groups(snapshot))
    disks = [({"id": "/", **_NOBODY}, disk, usage) for disk, usage in details.disks]
    families = [
        Family(f"container_{name}", kind, text, [_at(owner, sample, read) for owner, sample, _ in groups])
        for name, kind, text, read in _CGROUP
    ]
    total = [_at({**owner, "cpu": "total"}, sample, _cpu) for owner, sample, _ in groups]
    started: list[Sample] = [(owner, at / _NANO, None) for owner, _, at in groups if at > 0]
    families += [
        Family("container_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed in seconds.", total),
        Family(
            "container_start_time_seconds", "gauge", "Start time of the container since unix epoch in seconds.", started
        ),
        Family(
            "container_memory_failures_total",
            "counter",
            "Cumulative count of memory allocation failures.",
            list(_faults(groups)),
        ),
        Family(
            "container_fs_usage_bytes",
            "gauge",
            "Number of bytes that are consumed by the container on this filesystem.",
            [*_layers(snapshot), *usage_of(disks)],
        ),
        *disk_families(disks),
        *_network(snapshot),
        *_pressure(groups),
        *families_of(
            [
                (_labels(pod, entry), entry.sample.at // 1_000_000, details.containers[entry.sample.path])
                for pod in snapshot.pods
                for entry in _processes_of(pod)
                if entry.sample.path in details.containers
            ]
        ),
        Family("container_scrape_error", "gauge", _SCRAPE, [({}, 0, None)]),
        Family("machine_scrape_error", "gauge", _MACHINE_SCRAPE, [({}, 0, None)]),
        Family(
            "machine_swap_bytes",
            "gauge",
            "Amount of swap memory available on the machine.",
            [({}, snapshot.node.swap_total, None)],
        ),
        Family("machine_cpu_cores", "gauge", "Number of logical CPU cores.", [({}, snapshot.node.cpus, None)]),
        Family(
            "machine_memory_bytes",
            "gauge",
            "Amount of memory installed on the machine.",
            [({}, snapshot.node.memory_capacity, None)],
        ),
    ]
    return render(families)


def _network(snapshot: Snapshot) -> Iterator[Family]:
    node = snapshot.node
    owners: list[tuple[Labels, int, tuple[Interface, ...]]] = [
        ({"id": "/", **_NOBODY}, node.sample.at, node.interfaces),
        *((_labels(pod, pod.sandbox), pod.sample.at, pod.interfaces) for pod in snapshot.pods if pod.sandbox),
    ]
    for name, text, read in _INTERFACE:
        samples: list[Sample] = [
            ({**owner, "interface": entry.name}, read(entry), at // 1_000_000)
            for owner, at, entries in owners
            for entry in entries
            if entry.name != "lo"
        ]
        yield Family(f"container_network_{name}_total", "counter", f"Cumulative count of {text}", samples)


def _faults(groups: Iterable[tuple[Labels, CgroupSample, int]]) -> Iterator[Sample]:
    for owner, sample, _ in groups:
        labels = {**owner, "scope": "hierarchy"}
        yield _at({**labels, "failure_type": "pgfault"}, sample, lambda at: at.memory.page_faults)
        yield _at({**labels, "failure_type": "pgmajfault"}, sample, lambda at: at.memory.major_page_faults)


def _pressure(groups: Iterable[tuple[Labels, CgroupSample, int]]) -> Iterator[Family]:
    """Left out where the kernel has no stall information (v1)."""
    measured = [(owner, sample) for owner, sample, _ in groups if sample.cpu.pressure != Pressure()]
    for resource, read in _PRESSURE:
        waits = [(owner, sample.at // 1_000_000, read(sample)) for owner, sample in measured]
        for name, what, which in _STALLS:
            samples: list[Sample] = [(owner, which(wait) / _MICRO, at) for owner, at, wait in waits]
            text = f"Total time duration {what} due to {resource} congestion."
            yield Family(f"container_pressure_{resource.lower()}_{name}_seconds_total", "counter", text, samples)


def _layers(snapshot: Snapshot) -> Iterator[Sample]:
    for pod in snapshot.pods:
        for entry in pod.containers:
            if entry.layer is not None:
                yield {**_labels(pod, entry), "device": ""}, entry.layer.used, entry.layer.at // 1_000_000


def _groups(snapshot: Snapshot) -> Iterator[tuple[Labels, CgroupSample, int]]:
    """(labels, sample, start) of every cgroup that is shown."""
    node = snapshot.node
    for sample in (node.sample, *node.systems.values()):
        if sample.path.startswith("/"):
            yield {"id": sample.path, **_NOBODY}, sample, 0
    for pod in snapshot.pods:
        yield {"id": pod.sample.path, **_NOBODY, **_pod(pod)}, pod.sample, pod.started_at
        for entry in _processes_of(pod):
            yield _labels(pod, entry), entry.sample, entry.started_at


def _processes_of(pod: PodStats) -> tuple[ContainerStats, ...]:
    return (*pod.containers, pod.sandbox) if pod.sandbox else pod.containers


def _labels(pod: PodStats, entry: ContainerStats) -> Labels:
    return {"id": entry.sample.path, "name": entry.id, "image": entry.image, **_pod(pod), "container": entry.name}


def _at(labels: Labels, sample: CgroupSample, read: Read) -> Sample:
    return labels, read(sample), sample.at // 1_000_000


def _of(pod: PodStats, entry: ContainerStats) -> Labels:
    return {"container": entry.name, **_pod(pod)}


def _pod(pod: PodStats) -> Labels:
    return {"pod": pod.name, "namespace": pod.namespace}
