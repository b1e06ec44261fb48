"""Reads the facts of this machine; plan.preflight decides what they mean."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys

from controlplane.doctor.model import NODE_PORTS, Machine
from controlplane.machine.edge import cgroups, oom
from nodelib import command
from nodelib.errors import NodewrightError
from nodelib.files import text_of

_NEW_MOUNTS = 0x00020000
_NEW = _NEW_MOUNTS | 0x02000000 | 0x04000000 | 0x08000000 | 0x20000000 | 0x40000000  # mnt, cgroup, uts, ipc, pid, net
_TOOLS = ("nsenter", "unshare", "mount", "ip")
_FIRST_PID_NAMESPACE = 0xEFFFFFFC  # the kernel's constant: all processes are seen from there
_INOTIFY_TRIED = 32
_MODULES = ("overlay", "br_netfilter", "veth", "nf_conntrack")


async def read_facts(
    *, state_root: str, cache_root: str, built: bool, packages: tuple[str, ...], networks: list[str]
) -> Machine:
    """All facts at once. Never raises because something is missing: that is a fact too."""
    root = os.geteuid() == 0
    namespaces, chroot = await try_namespaces() if root else ("", False)
    trees = _trees()
    memory = _meminfo()
    listening = _listening()
    instances = _number("/proc/sys/fs/inotify/max_user_instances")
    return Machine(
        root=root,
        python=sys.version_info[:2],
        kernel=os.uname().release,
        namespaces=namespaces,
        chroot=chroot,
        kernel_features=await _features() if root and not namespaces and not chroot else {},
        iptables=await _first_line("iptables", "--version"),
        foreign_rules=await _foreign_rules() if root else 0,
        cgroup_mode=trees.mode if trees else "",
        controllers=frozenset(trees.controllers()) if trees else frozenset(),
        may_lower_oom_score=oom.may_lower_score(),
        inotify_instances=instances,
        inotify_watches=_number("/proc/sys/fs/inotify/max_user_watches"),
        inotify_used=_inotify_used(instances),
        ports_taken=tuple(port for port in NODE_PORTS if port in listening),
        memory=memory.get("MemAvailable", 0),
        swap=memory.get("SwapTotal", 0) - memory.get("SwapFree", 0),
        load=os.getloadavg()[0],
        cpus=len(os.sched_getaffinity(0)),
        state_free=_free(state_root),
        cache_free=_free(cache_root),
        state_root=state_root,
        cache_root=cache_root,
        bridge_netfilter=os.path.exists("/proc/sys/net/bridge/bridge-nf-call-iptables"),
        missing_tools=tuple(name for name in _TOOLS if not shutil.which(name)),
        go=await _first_line("go", "version"),
        built=built,
        missing_packages=await _missing_packages(packages),
        taken_networks=tuple(networks),
    )


async def load_modules() -> None:
    """Load the kernel modules that clusters use; read_facts() finds out which features are there."""
    if shutil.which("modprobe"):
        for name in _MODULES:
            await command.run(["modprobe", "--quiet", name], check=False, timeout=10)


# Joining a mount namespace makes its root the process's root (setns(2)): another one than before is that of a chroot.
_TRY_NAMESPACES = f"""
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def tried(status):
    if status:
        raise SystemExit(os.strerror(ctypes.get_errno()))
def root():
    fd = os.open("/", os.O_PATH)
    with open(f"/proc/self/fdinfo/{{fd}}") as info:
        return os.fstat(fd).st_ino, [line for line in info if line.startswith("mnt_id")]
tried(libc.unshare({_NEW}))
before = root()
tried(libc.setns(os.open("/proc/self/ns/mnt", os.O_RDONLY), {_NEW_MOUNTS}))
print("same" if root() == before else "chroot")
"""


async def try_namespaces() -> tuple[str, bool]:
    """Why namespaces cannot be made, "" if they can; whether this process's root is not that of its mount namespace."""
    # Tried in a child process: this one must not leave its own namespaces.
    done = await command.run([sys.executable, "-I", "-S", "-c", _TRY_NAMESPACES], check=False, timeout=10)
    if done.returncode:
        return done.stderr.decode(errors="replace").strip()[-200:] or f"exit status {done.returncode}", False
    return "", done.text.strip() == "chroot"


async def _features() -> dict[str, str]:
    """Each is really tried, in a network and mount namespace that ends with the trial."""
    trials = {
        "veth": "ip link add t0 type veth peer name t1",
        "bridge": "ip link add t0 type bridge",
        "overlayfs": "mount -t tmpfs none /mnt && mkdir /mnt/l /mnt/u /mnt/w /mnt/m && "
        "mount -t overlay overlay -o lowerdir=/mnt/l,upperdir=/mnt/u,workdir=/mnt/w /mnt/m && umount /mnt/m && "
        "mount -t overlay overlay -o lowerdir=/etc,upperdir=/mnt/u,workdir=/mnt/w /mnt/m",
        "conntrack": "iptables -w 5 -A INPUT -m conntrack --ctstate NEW -j ACCEPT",
        "iptables nat": "iptables -w 5 -t nat -A POSTROUTING -m comment --comment x -j MASQUERADE",
    }
    found = {}
    for name, script in trials.items():
        done = await command.run(["unshare", "--net", "--mount", "sh", "-c", script], check=False, timeout=20)
        found[name] = "" if done.returncode == 0 else done.stderr.decode(errors="replace").strip()[-160:] or "refused"
    return found


async def _first_line(*argv: str) -> str:
    if not shutil.which(argv[0]):
        return ""
    done = await command.run(argv, check=False, timeout=20)
    return done.text.strip().partition("\n")[0]


async def _foreign_rules() -> int:
    """Number of rules in the iptables backend that the plain command does not use."""
    nft = "nf_tables" in await _first_line("iptables", "--version")
    other = "iptables-legacy-save" if nft else "iptables-nft-save"
    # The legacy command loads its modules when it runs: only run it where tables exist already.
    if not shutil.which(other) or (nft and not text_of("/proc/net/ip_tables_names").strip()):
        return 0
    done = await command.run([other], check=False, timeout=20)
    return sum(line.startswith("-A") for line in done.text.splitlines())


async def _missing_packages(packages: tuple[str, ...]) -> tuple[str, ...]:
    if not packages or not shutil.which("dpkg-query"):
        return ()
    done = await command.run(["dpkg-query", "-W", "-f", "${Package} ${Status}\n", *packages], check=False)
    present = {line.split()[0] for line in done.text.splitlines() if line.endswith(" installed")}
    return tuple(name for name in packages if name not in present)


def _trees() -> cgroups.Hierarchies | None:
    try:
        return cgroups.hierarchies()
    except NodewrightError:
        return None


def _inotify_used(most: int) -> int:
    """What is in use of `most`. In a container /proc does not show who else has some: what it can open tells."""
    seen = _inotify_instances()
    if os.stat("/proc/self/ns/pid").st_ino == _FIRST_PID_NAMESPACE:
        return seen
    free = _can_open(_INOTIFY_TRIED)
    return max(seen, most - free) if free < _INOTIFY_TRIED else seen


def _can_open(most: int) -> int:
    """How many inotify instances this user can have beside those that there are, at most `most`."""
    libc = ctypes.CDLL(None)
    opened: list[int] = []
    try:
        while len(opened) < most and (one := libc.inotify_init1(os.O_CLOEXEC)) >= 0:
            opened.append(one)
    finally:
        for one in opened:
            os.close(one)
    return len(opened)


def _inotify_instances() -> int:
    """How many this user's processes have open, as fs.inotify.max_user_instances counts them."""
    count = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{pid}").st_uid == os.geteuid():
                folder = f"/proc/{pid}/fd"
                count += sum(os.readlink(f"{folder}/{fd}") == "anon_inode:inotify" for fd in os.listdir(folder))
        except OSError:
            continue  # it has exited in the meantime
    return count


def _listening() -> frozenset[int]:
    """TCP ports with a listener in this network namespace."""
    rows = [line.split() for path in ("/proc/net/tcp", "/proc/net/tcp6") for line in text_of(path).splitlines()[1:]]
    return frozenset(int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A")


def _meminfo() -> dict[str, int]:
    rows = (line.split() for line in text_of("/proc/meminfo").splitlines())
    return {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows if len(row) > 1}


def _free(path: str) -> int:
    """Free bytes on the file system where `path` is or will be."""
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize


def _number(path: str) -> int:
    text = text_of(path).strip()
    return int(text) if text.isdigit() else 0
