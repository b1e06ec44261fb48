"""Stats of one moment from cgroups, /proc, file systems and the runtime.

Times are in nanoseconds since the epoch, sizes in bytes, CPU time in nanoseconds. Counters are cumulative as the kernel
keeps them. A limit of 0 means that there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Stall:
    """Time that tasks waited: total in microseconds, and percent of the last 10, 60 and 300 seconds."""

    total: int = 0
    avg10: float = 0.0
    avg60: float = 0.0
    avg300: float = 0.0


@dataclass(frozen=True, slots=True)
class Pressure:
    """Stall information of one resource: some tasks waited, or all did. Zero where the kernel has none (v1)."""

    some: Stall = field(default_factory=Stall)
    full: Stall = field(default_factory=Stall)


@dataclass(frozen=True, slots=True)
class Cpu:
    """CPU accounting of one cgroup."""

    usage: int = 0
    user: int = 0
    system: int = 0
    periods: int = 0
    throttled_periods: int = 0
    throttled: int = 0
    pressure: Pressure = field(default_factory=Pressure)


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory accounting of one cgroup, its children included. Working set: usage without inactive file pages.

    `scanned`, `stolen` and `refaults_*` are pages: of reclaim, and of what was reclaimed and needed again.
    """

    usage: int = 0
    working_set: int = 0
    rss: int = 0
    cache: int = 0
    mapped_file: int = 0
    swap: int = 0
    max_usage: int = 0
    limit: int = 0
    fail_count: int = 0
    page_faults: int = 0
    major_page_faults: int = 0
    pressure: Pressure = field(default_factory=Pressure)
    swap_limit: int = 0
    kernel: int = 0
    active_file: int = 0
    inactive_file: int = 0
    dirty: int = 0
    writeback: int = 0
    scanned: int = 0
    stolen: int = 0
    refaults_anon: int = 0
    refaults_file: int = 0


@dataclass(frozen=True, slots=True)
class CgroupSample:
    """One cgroup at one moment. `path` as it stands in /proc/<pid>/cgroup."""

    path: str
    at: int
    cpu: Cpu = field(default_factory=Cpu)
    memory: Memory = field(default_factory=Memory)
    processes: int = 0
    io: Pressure = field(default_factory=Pressure)


@dataclass(frozen=True, slots=True)
class Device:
    """Block I/O of one cgroup on one device, by operation (Read, Write, …): bytes, and how many."""

    name: str
    major: int
    minor: int
    bytes: Mapping[str, int]
    operations: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ContainerDetails:
    """What only /metrics/cadvisor shows of a container. A limit that is not set is 0, for `open_files` -1."""

    file_descriptors: int = 0
    sockets: int = 0
    threads: int = 0
    threads_max: int = 0
    open_files: int | None = None
    cpu_shares: int = 0
    cpu_period: int = 0
    cpu_quota: int = 0
    memory_swap_limit: int = 0
    memory_reservation: int = 0
    memory_high: int = 0
    memory_max: int = 0
    oom_kills: int = 0
    devices: tuple[Device, ...] = ()


@dataclass(frozen=True, slots=True)
class Disk:
    """A block device of the machine since its start (Documentation/admin-guide/iostats.rst); times in milliseconds."""

    name: str
    reads: int
    reads_merged: int
    sectors_read: int
    reading: int
    writes: int
    writes_merged: int
    sectors_written: int
    writing: int
    in_progress: int
    busy: int
    weighted: int


@dataclass(frozen=True, slots=True)
class Details:
    """What only /metrics/cadvisor shows: containers by cgroup path, and the disks under the node's file systems."""

    containers: Mapping[str, ContainerDetails] = field(default_factory=dict)
    disks: tuple[tuple[Disk, FsUsage], ...] = ()


@dataclass(frozen=True, slots=True)
class PodCgroup:
    """The cgroup of a pod and those of its containers by id, as paths below the mount."""

    path: str
    containers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Interface:
    """Counters of one network interface (/proc/net/dev)."""

    name: str
    rx_bytes: int = 0
    rx_packets: int = 0
    rx_errors: int = 0
    rx_dropped: int = 0
    tx_bytes: int = 0
    tx_packets: int = 0
    tx_errors: int = 0
    tx_dropped: int = 0


@dataclass(frozen=True, slots=True)
class FsUsage:
    """A file system, or the part that one directory uses. `device` is st_dev, which identifies the file system.

    `unread`: why a part of the directory could not be measured, so that it uses more than `used`; "" if nothing was.
    """

    at: int
    capacity: int = 0
    available: int = 0
    used: int = 0
    inodes: int = 0
    inodes_free: int = 0
    inodes_used: int = 0
    device: int = 0
    unread: str = ""


@dataclass(frozen=True, slots=True)
class TreeUsage:
    """Bytes and inodes of a file or directory with all below it. `unread`: see FsUsage."""

    used: int
    inodes: int
    unread: str = ""


@dataclass(frozen=True, slots=True)
class Layer:
    """What a container has written into its writable layer."""

    at: int
    used: int
    inodes_used: int


@dataclass(frozen=True, slots=True)
class ContainerStats:
    """A running container, or the sandbox's own process (name "")."""

    id: str
    name: str
    image: str
    started_at: int
    sample: CgroupSample
    layer: Layer | None = None
    logs: FsUsage | None = None


@dataclass(frozen=True, slots=True)
class VolumeStats:
    """A mounted volume. `ephemeral`: it is on the node's own disk and counts as local ephemeral storage."""

    name: str
    usage: FsUsage
    claim: str = ""
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class PodStats:
    """A pod with a cgroup. `interfaces` are those of its network namespace; a pod on the host network has none.

    `own_files`: what its containers can write beside volumes, layers and logs (/etc/hosts, termination messages).
    """

    uid: str
    namespace: str
    name: str
    started_at: int
    sample: CgroupSample
    containers: tuple[ContainerStats, ...] = ()
    sandbox: ContainerStats | None = None
    interfaces: tuple[Interface, ...] = ()
    volumes: tuple[VolumeStats, ...] = ()
    own_files: FsUsage | None = None


@dataclass(frozen=True, slots=True)
class NodeStats:
    """The machine as this node sees it. `huge_pages`: bytes of `memory_capacity` that nothing else can use."""

    name: str
    boot_at: int
    sample: CgroupSample
    memory_capacity: int
    cpus: int
    interfaces: tuple[Interface, ...] = ()
    default_interface: str = ""
    fs: FsUsage | None = None
    image_fs: FsUsage | None = None
    max_pid: int = 0
    processes: int = 0
    swap_total: int = 0
    huge_pages: int = 0
    systems: Mapping[str, CgroupSample] = field(default_factory=dict)

    @property
    def memory_available(self) -> int:
        """What is left for more than huge pages."""
        return max(0, self.memory_capacity - self.huge_pages - self.sample.memory.working_set)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything at (nearly) one moment, and (time, CPU usage) of an earlier one by cgroup path, for rates."""

    node: NodeStats
    pods: tuple[PodStats, ...] = ()
    earlier: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StatsSettings:
    """Paths of cgroups (as in /proc/<pid>/cgroup) and folders.

    `kubepods` is the cgroup of all pods. `node_cgroup` is that of the whole node, which may be a part of a bigger
    machine: its memory limit, if it has one, is the node's capacity. `runtime_cgroup` and `system_cgroup` are those of
    the container runtime and of the processes without another one, "" if they are not known. `huge_pages`: bytes of the
    machine's memory that are set aside for them.
    """

    node_name: str
    kubepods: str = "/kubepods"
    root_dir: str = "/var/lib/kubelet"
    pod_logs_dir: str = "/var/log/pods"
    node_cgroup: str = "/"
    runtime_cgroup: str = ""
    system_cgroup: str = ""
    huge_pages: int = 0


@dataclass(frozen=True, slots=True)
class Storage:
    """What the kernel does not know: writable layers by container id, the image file system, volumes of drivers."""

    layers: Mapping[str, Layer]
    image_fs: FsUsage | None
    served: Mapping[str, tuple[VolumeStats, ...]] = field(default_factory=dict)
