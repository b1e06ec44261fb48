"""Protocols of what stats are collected from: cgroups, the machine, file systems."""

from __future__ import annotations

from typing import Protocol

from agent.stats.model import (
    CgroupSample,
    ContainerDetails,
    Cpu,
    Disk,
    FsUsage,
    Interface,
    Memory,
    PodCgroup,
    Pressure,
    TreeUsage,
)


class CgroupReadings(Protocol):
    """Accounting of cgroups (edge/cgroups.py). Blocking: call it in a thread."""

    def sample(self, path: str) -> CgroupSample | None: ...

    def pods(self, kubepods: str) -> dict[str, PodCgroup]: ...

    def any_pid(self, path: str) -> int | None: ...

    def details(self, path: str) -> ContainerDetails | None: ...


class MachineReadings(Protocol):
    """Accounting of the machine, of file systems and of folders (edge/machine.py). Blocking: call it in a thread."""

    def node_memory(self) -> tuple[Memory, int, int]: ...

    def node_cpu(self) -> Cpu: ...

    def boot_time(self) -> int: ...

    def process_limits(self) -> tuple[int, int]: ...

    def interfaces(self, pid: int | str = "self") -> tuple[Interface, ...]: ...

    def default_interface(self) -> str: ...

    def cpus(self) -> int: ...

    def is_part(self) -> bool: ...

    def own_process(self) -> tuple[Cpu, Memory]: ...

    def node_pressure(self) -> tuple[Pressure, Pressure, Pressure]: ...

    def filesystem(self, path: str) -> FsUsage | None: ...

    def disk(self, device: int) -> Disk | None: ...

    def tree(self, path: str) -> TreeUsage: ...

    def volumes_of(self, pods_dir: str, uid: str) -> list[tuple[str, str, str]]: ...
