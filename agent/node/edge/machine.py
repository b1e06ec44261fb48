"""What this machine is and has: identity, capacity and addresses. Only apply_limits() changes anything.

The sources are those that cAdvisor reads for upstream: proc(5), os-release(5), machine-id(5).
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import resource
import socket
from urllib.parse import urlsplit

from agent.node.edge.selinux import selinux
from agent.node.model import MachineFacts
from agent.resources.edge.kernel import hugepage_sizes
from agent.stats.edge.cgroups import CgroupReader
from nodelib.cgroups import cpus_here
from nodelib.errors import Permanent

log = logging.getLogger(__name__)

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}
_UNUSED_ADDRESSES = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}  # RFC 5737, RFC 3849
_NO_ROUTE_PORT = 9
_ALL_USERS = ["0", "0", str(2**32 - 1)]  # user_namespaces(7): uid_map of the initial namespace


class Machine:
    """`root_dir`: where pods' volumes are (nodefs); `cgroup`: the node's own, whose limit bounds its memory.

    In a container or on a node of `up`, limits of the cgroup that is the root there bound memory and CPUs.
    """

    def __init__(self, root_dir: str, cgroup: str = "/") -> None:
        self._root_dir, self._cgroup = root_dir, cgroup

    def facts(self) -> MachineFacts:
        memory = _meminfo()
        return MachineFacts(
            machine_id=_first("/etc/machine-id", "/var/lib/dbus/machine-id"),
            system_uuid=_first("/sys/class/dmi/id/product_uuid", "/proc/device-tree/vm,uuid", "/etc/machine-id"),
            boot_id=_first("/proc/sys/kernel/random/boot_id"),
            kernel_version=os.uname().release,
            os_image=_os_release().get("PRETTY_NAME", "Linux"),
            architecture=_ARCHITECTURES.get(os.uname().machine, os.uname().machine),
            cpus=cpus_here(),
            memory=self._memory(memory.get("MemTotal", 0)),
            storage=_disk_size(self._root_dir),
            pids=_most_pids(),
            swap=memory.get("SwapTotal", 0),
            hugepages={size: size * _hugepages(size) for size in hugepage_sizes()},
            apparmor=_first("/sys/module/apparmor/parameters/enabled") == "Y",
            selinux=selinux(),
            user_namespace=_first("/proc/self/uid_map").split() not in ([], _ALL_USERS),
        )

    def _memory(self, total: int) -> int:
        found = CgroupReader().sample(self._cgroup)  # the root of a real machine has no limit
        return min(total, found.memory.limit) if found is not None and found.memory.limit else total


async def addresses_towards(server: str, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """This node's addresses: `wanted` (--node-ip) when given, else the one that leads to the API `server` (a URL).

    Raises Permanent when `wanted` is not an address of this machine, or when there is no route at all. A loopback
    address is never used: nobody else could reach it.
    """
    for address in wanted:
        if not _unspecified(address):
            _must_be_local(address)
    if wanted and not _unspecified(wanted[0]):
        return wanted
    family = socket.AF_INET6 if wanted and ":" in wanted[0] else socket.AF_INET
    for target in [*await _resolve(server), (family, _UNUSED_ADDRESSES[family])]:
        address = _source_address(*target)
        if address and (not wanted or target[0] == family):
            return (address,)
    raise Permanent(
        "neither a route to the API server nor a default route gives this node's address",
        obj="node address",
        step="ask the kernel for a route",
        action="Give the node's address with --node-ip.",
    )


def apply_limits(*, max_open_files: int, oom_score_adj: int) -> list[str]:
    """Set the agent's own limits as far as this machine allows; one line for each that could not be set."""
    problems = []
    try:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < max_open_files:
            most = hard if hard != resource.RLIM_INFINITY else max_open_files
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(max_open_files, most), hard))
    except (OSError, ValueError) as error:
        problems.append(f"maxOpenFiles {max_open_files}: {error}")
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write(str(oom_score_adj))
    except OSError as error:
        problems.append(f"oomScoreAdj {oom_score_adj}: {error.strerror} (CAP_SYS_RESOURCE is needed to lower it)")
    return problems


def swaps() -> list[str]:
    """Names of active swap areas (proc_swaps(5))."""
    try:
        with open("/proc/swaps", encoding="utf-8") as file:
            return [line.split()[0] for line in file.read().splitlines()[1:] if line.strip()]
    except FileNotFoundError:
        return []


def check_swap(fail_swap_on: bool) -> None:
    """Raises Permanent when there is swap and the configuration forbids it."""
    active = swaps() if fail_swap_on else []
    if active:
        raise Permanent(
            f"running with swap on is not supported: {', '.join(active)}",
            obj="failSwapOn: true",
            step="check machine",
            action="Disable swap (swapoff -a), or set failSwapOn: false.",
        )


def _source_address(family: int, address: str) -> str:
    """The source address that the kernel would choose. connect() on a UDP socket sends nothing."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, _NO_ROUTE_PORT))
            found = str(probe.getsockname()[0])
    except OSError:
        return ""
    return "" if found.startswith("127.") or found in ("::1", "0.0.0.0", "::") else found


async def _resolve(server: str) -> list[tuple[int, str]]:
    host = urlsplit(server).hostname if server else None
    if not host:
        return []
    try:
        answers = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_DGRAM)
    except OSError as error:
        log.warning("the API server's name %s does not resolve: %s", host, error)
        return []
    return [(family, str(address[0])) for family, _, _, _, address in answers]


def _must_be_local(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError as error:
        raise Permanent(
            f"{address} is not an address of this machine ({error.strerror})",
            obj=f"--node-ip {address}",
            step="check node address",
            action="Give an address that `ip address` shows on this machine.",
        ) from error


def _unspecified(address: str) -> bool:
    return address in ("0.0.0.0", "::")


def _first(*paths: str) -> str:
    for path in paths:
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                text = file.read().strip().strip("\0")
        except OSError:
            continue
        if text:
            return text
    return ""


def _meminfo() -> dict[str, int]:
    """Bytes by name."""
    found = {}
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            name, _, rest = line.partition(":")
            words = rest.split()
            if words and words[0].isdigit():
                found[name] = int(words[0]) * (1024 if words[-1] == "kB" else 1)
    return found


def _os_release() -> dict[str, str]:
    try:
        return platform.freedesktop_os_release()
    except OSError:
        return {}


def _disk_size(folder: str) -> int:
    """Bytes of the file system that `folder` is, or will be, on."""
    while not os.path.exists(folder) and folder != "/":
        folder = os.path.dirname(folder)
    found = os.statvfs(folder)
    return found.f_blocks * found.f_frsize


def _number(path: str) -> int:
    text = _first(path)
    return int(text) if text.isdigit() else 0


def _most_pids() -> int:
    found = [_number("/proc/sys/kernel/pid_max"), _number("/proc/sys/kernel/threads-max")]
    return min((number for number in found if number), default=32768)


def _hugepages(size: int) -> int:
    return _number(f"/sys/kernel/mm/hugepages/hugepages-{size // 1024}kB/nr_hugepages")
