"""A node as a machine of its own, from nsinit alone: its process 1, its file tree, its namespaces, its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from controlplane.cluster.model import KINDS, Cluster, Options
from controlplane.cluster.plan import node_files
from controlplane.cluster.work import nodes
from controlplane.images.model.snapshots import SNAPSHOTS
from controlplane.machine.edge import cgroups, machine_root, namespaces, process_one
from controlplane.supervisor.edge import units
from controlplane.supervisor.model import Program
from nodelib import cgroups as cgroup_mounts

PROJECT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.netns, pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")]


@dataclass
class Machine:
    """A node without containerd or agent."""

    cluster: Cluster

    @property
    def folder(self) -> str:
        return self.cluster.unit_dir("node1")

    @property
    def one(self) -> int:
        return process_one.alive(units.machine_lock(self.folder))

    def start(self, more: Sequence[str] = (), layers: Sequence[str] = (), **limits: int) -> int:
        """What `up` does for a node before it starts daemons. The pid of its process 1."""
        node, trees = self.cluster.nodes[0], cgroups.hierarchies()
        nodes.write_files(self.cluster, node)
        if not self.one:
            cgroups.remove(trees, f"{self.cluster.cgroup}/node1")
        folders = cgroups.ensure(trees, f"{self.cluster.cgroup}/node1")
        if limits:
            cgroups.limit(folders, cpus=limits["cpus"], memory=limits["memory"])
        readonly = node_files.readonly_folders([str(PROJECT), sys.prefix, sys.base_prefix, *more])
        spec = node_files.machine(self.cluster, node, folders, readonly, sys.executable, str(PROJECT), layers)
        asyncio.run(namespaces.make(spec, str(PROJECT)))
        return self.one

    def run(self, *argv: str, check: bool = True) -> str:
        """The output of a command in the node."""
        line = namespaces.in_node(self.cluster.namespaces("node1"), argv)
        return subprocess.run(line, check=check, capture_output=True, text=True, timeout=60).stdout.strip()

    def want(self, *programs: Program) -> None:
        units.write_spec(self.folder, cgroups=(), namespaces=(), programs=programs)
        units.ensure_supervisor(self.folder, f"{self.cluster.log_dir('node1')}/supervisor.log", str(PROJECT))

    def program(self, name: str, script: str) -> Program:
        return Program(name, ("/bin/sh", "-c", script), f"{self.cluster.log_dir('node1')}/{name}.log")

    def pid(self, name: str) -> int:
        row = units.programs(self.folder).get(name)
        return int(row["pid"]) if row and row["alive"] else 0

    def remove(self) -> None:
        process_one.kill(units.machine_lock(self.folder))
        trees = cgroups.hierarchies()
        cgroups.kill_all(trees, self.cluster.cgroup)
        namespaces.unmount_below(self.cluster.dir)
        cgroups.remove(trees, self.cluster.cgroup)
        cgroups.remove_if_empty(trees, "/nodewright")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    name = f"m{uuid.uuid4().hex[:8]}"
    found = Machine(Cluster(name, "10.89.201.0/24", Options(nodes=2, uplink=False), root=str(tmp_path)))
    try:
        yield found
    finally:
        found.remove()


def until(wanted: Callable[[], object], what: str, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not wanted():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def test_it_is_a_machine_of_its_own(machine: Machine) -> None:
    one = machine.start()
    assert {kind: os.stat(f"/proc/{one}/ns/{kind}").st_ino for kind in KINDS} == {
        kind: os.stat(path).st_ino for kind, path in machine.cluster.namespaces("node1").items()
    }
    assert all(os.stat(f"/proc/{one}/ns/{kind}").st_ino != os.stat(f"/proc/self/ns/{kind}").st_ino for kind in KINDS)
    assert machine.run("hostname") == "node1"
    assert "init.py" in machine.run("cat", "/proc/1/cmdline")
    pids = [int(name) for name in machine.run("ls", "/proc").split() if name.isdigit()]
    assert len(pids) == 2  # process 1 and ls
    paths = {line.partition(":")[2].partition(":")[2] for line in machine.run("cat", "/proc/1/cgroup").splitlines()}
    assert paths == {"/system"}
    for kept in ("boot_id", "machine-id"):
        path = f"/proc/sys/kernel/random/{kept}" if kept == "boot_id" else f"/etc/{kept}"
        mine = Path(path).read_text().strip() if os.path.exists(path) else ""
        assert machine.run("cat", path) not in ("", mine)


def test_it_is_made_once_and_again_when_it_ended(machine: Machine) -> None:
    first = machine.start()
    boot = machine.run("cat", "/proc/sys/kernel/random/boot_id")
    machine.run("touch", "/run/mark", "/root/mark")
    net = os.stat(machine.cluster.namespace("node1", "net")).st_ino
    subprocess.run(["umount", machine.cluster.namespace("node1", "ipc")], check=True)
    assert machine.start() == first and namespaces.is_bound(machine.cluster.namespace("node1", "ipc"))
    os.kill(first, signal.SIGKILL)
    until(lambda: not machine.one, "the lock is free")
    second = machine.start()
    assert second not in (0, first)
    assert machine.run("cat", "/proc/sys/kernel/random/boot_id") != boot
    assert machine.run("sh", "-c", "ls /run/mark; ls /root/mark", check=False) == "/root/mark"
    # The control plane and links to others are in it: it must outlive the node.
    assert os.stat(machine.cluster.namespace("node1", "net")).st_ino == net


def test_layers_of_images_cannot_be_written_and_go_with_their_snapshots(machine: Machine) -> None:
    """Neither where they are mounted nor where another bind mount shows them, as a pod's hostPath does."""
    own, snapshots = Path(machine.cluster.node_dir("node1")), Path(node_files.RUNTIME_SNAPSHOTS)
    for name in ("1", "2"):
        (own / "image-layers" / name / "fs").mkdir(parents=True)
        (own / "image-layers" / name / "fs/file").write_text("shared")
        for part in ("fs", "work"):
            (own / f"containerd/{SNAPSHOTS}" / name / part).mkdir(parents=True)
    machine.start(layers=("1", "2"))
    file = str(snapshots / "1/fs/file")
    assert machine.run("cat", file) == "shared"
    bound = "mkdir /mnt/all && mount --rbind /var/lib/containerd /mnt/all && mount --make-rprivate /mnt/all"
    machine.run("sh", "-c", f"{bound} && echo mine > /mnt/all/mine")
    for path in (file, file.replace("/var/lib/containerd", "/mnt/all")):
        said = machine.run("sh", "-c", f"{{ echo evil > {path} || rm {path} || chmod 777 {path}; }} 2>&1", check=False)
        assert said.count("Read-only file system") == 3, said
    machine.run("umount", "-R", "/mnt/all")

    def release() -> str:
        call = f"from controlplane.machine.edge.layers import release; print(release({str(snapshots)!r}))"
        return machine.run("env", f"PYTHONPATH={PROJECT}", sys.executable, "-S", "-c", call)

    assert release() == "[]"
    machine.run("rmdir", str(snapshots / "1/work"))
    assert release() == f"['{snapshots}/1/fs']"
    machine.run("rmdir", str(snapshots / "1/fs"), str(snapshots / "1"))
    assert (own / "image-layers/1/fs/file").read_text() == "shared"
    machine.run("umount", str(snapshots / "2/fs"))
    machine.start(layers=("2",))
    file = str(snapshots / "2/fs/file")
    assert "Read-only" in machine.run("sh", "-c", f"{{ echo evil > {file}; }} 2>&1; cat {file} >/dev/null")


def test_what_it_writes_stays_in_it(machine: Machine) -> None:
    machine.start()
    name = f"nw-{uuid.uuid4().hex}"
    paths = [f"{folder}/{name}" for folder in ("/etc", "/usr/bin", "/opt", "/root", "/tmp", "/var/lib", "/srv", "")]
    machine.run("touch", *paths)
    assert [path for path in paths if os.path.exists(path)] == []
    assert machine.run("sh", "-c", f"echo changed > /etc/passwd; cat /etc/passwd; touch {name}") == "changed"
    assert "changed" not in Path("/etc/passwd").read_text()


def test_what_it_must_not_see_is_not_there(machine: Machine) -> None:
    secret = Path(machine.cluster.pki_dir, "ca.key")
    other = Path(machine.cluster.node_dir("node2"), "kubernetes", "kubelet.conf")
    for path in (secret, other):
        path.parent.mkdir(parents=True)
        path.write_text("secret")
    machine.start()
    for name in map(str, (secret, other, "/etc/shadow", machine.cluster.ns_dir, units.machine_lock(machine.folder))):
        assert machine.run("ls", name, check=False) == ""
    assert machine.run("ls", machine.cluster.dir).split() == ["node1"]
    assert set(machine.run("ls", machine.cluster.node_dir("node1")).split()) == {"commands", "log", "supervisor"}
    assert set(machine.run("sh", "-c", "ls -d /home/* /root/* /srv/*", check=False).split()) == set()
    disks = machine.run("sh", "-c", "find /dev -type b | grep -v /dev/loop", check=False)
    assert disks == "" and "/dev/loop0" in machine.run("sh", "-c", "ls /dev/null /dev/loop0 /dev/pts/ptmx /dev/shm -d")


@pytest.mark.parametrize("path", ["/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern"])
def test_the_machine_is_not_rebooted_by_a_node(machine: Machine, path: str) -> None:
    machine.start()
    assert machine.run("cat", "/proc/1/comm") == "nodewright-init"
    if not os.path.exists(path):
        pytest.skip(f"this kernel has no {path}")
    assert "Read-only file system" in machine.run("sh", "-c", f"(: > {path}) 2>&1", check=False)


def test_a_user_namespace_in_a_node_can_have_a_proc_of_its_own(machine: Machine) -> None:
    """As a pod with `hostUsers: false` needs it. The node's own /proc has files that are hidden."""
    machine.start()
    alone = ("unshare", "--user", "--map-root-user", "--mount", "--net", "--pid", "--fork")
    done = machine.run(*alone, "sh", "-c", "mount -t proc proc /mnt && cat /mnt/1/comm && mount -t sysfs sysfs /mnt")
    assert done == "sh"


@pytest.mark.parametrize("path", [str(PROJECT), sys.prefix])
def test_programs_can_only_be_read(machine: Machine, path: str) -> None:
    machine.start()
    done = machine.run("sh", "-c", f"touch {path}/nw-written 2>&1 || ls -d {path}", check=False)
    assert "Read-only file system" in done and path in done.splitlines()


def test_a_folder_that_is_needed_later_is_added_to_a_living_node(machine: Machine, tmp_path: Path) -> None:
    """Another checkout of the project runs `up`: its folder is not in the node yet. And a lost mount is mended."""
    one = machine.start()
    machine.run("umount", "/etc/kubernetes")
    newer = tmp_path / "newer"
    newer.mkdir()
    (newer / "file").write_text("new")
    assert machine.start(more=[str(newer)]) == one
    assert machine.run("cat", f"{newer}/file") == "new"
    assert "Read-only" in machine.run("sh", "-c", f"touch {newer}/x 2>&1", check=False)
    assert "manifests" in machine.run("ls", "/etc/kubernetes")


def test_what_process_1_has_open_is_no_way_out(machine: Machine) -> None:
    """Whoever is root in the node can open it all again: no folder, program or pid of the machine is among it."""
    one = machine.start()
    lock = units.machine_lock(machine.folder)
    kept = {lock, "/dev/null", f"{machine.cluster.log_dir('node1')}/init.log"}
    until(lambda: _open_files(one) == kept, "process 1 keeps more open, or less")  # it opens others for a moment
    machine.run("sh", "-c", "for fd in /proc/1/fd/*; do case $(readlink $fd) in *lock) echo 1 > $fd;; esac; done")
    assert machine.one == one
    refused = machine.run("sh", "-c", "(: >> /proc/1/exe) 2>&1; true")
    assert "Text file busy" in refused or "Read-only" in refused


def _open_files(pid: int) -> set[str]:
    found = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(f"/proc/{pid}/fd/{name}"))
    return found


def test_a_supervisors_files_may_be_anything(machine: Machine) -> None:
    """A pod that is root on the node replaces them: nothing is written through a link, and nobody waits for a pipe."""
    victim = Path(machine.cluster.dir, "victim")
    machine.start()
    mine = '{"programs": [{"name": "of another", "argv": []}]}'
    victim.write_text(mine)
    machine.want(machine.program("one", "exec sleep 600"))
    until(lambda: machine.pid("one"), "the program runs")
    units.kill_supervisor(machine.folder)
    folder = machine.folder
    machine.run("sh", "-c", f"cd {folder}; rm -f *.json; mkfifo state.json; ln -s {victim} .spec.json.new")
    machine.run("sh", "-c", f"ln -sf {victim} {folder}/spec.json; ln -sf {victim} /etc/kubernetes/kubelet.yaml")
    assert units.programs(folder) == {}
    assert units.program_names(folder) == []  # a link is not followed
    nodes.write_files(machine.cluster, machine.cluster.nodes[0])
    assert "KubeletConfiguration" in machine.run("cat", "/etc/kubernetes/kubelet.yaml")
    units.write_spec(folder, cgroups=(), namespaces=(), programs=())
    assert victim.read_text() == mine and units.program_names(folder) == []


def test_orphans_are_collected(machine: Machine) -> None:
    machine.start()
    machine.run("sh", "-c", "sleep 0.1 & sleep 0.2 & exit 0")
    until(
        lambda: machine.run("sh", "-c", "cat /proc/[0-9]*/stat", check=False).count(" sleep)") == 0, "no zombie is left"
    )


def test_its_supervisor_is_started_again_and_takes_over(machine: Machine) -> None:
    machine.start()
    machine.want(machine.program("one", "exec sleep 600"))
    until(lambda: machine.pid("one"), "the program runs")
    first, supervisor = machine.pid("one"), units.supervisor_pid(machine.folder)
    status = Path(f"/proc/{first}/status").read_text()
    assert "NSpid:" in status and len(status.partition("NSpid:")[2].splitlines()[0].split()) == 2
    assert units.kill_supervisor(machine.folder) == 1
    until(lambda: units.supervisor_pid(machine.folder) not in (0, supervisor), "another supervisor")
    machine.want(machine.program("one", "exec sleep 600"), machine.program("two", "exec sleep 600"))
    until(lambda: machine.pid("two"), "the second program runs")
    assert machine.pid("one") == first


def test_its_end_ends_everything(machine: Machine) -> None:
    one = machine.start()
    machine.want(machine.program("one", "setsid sleep 600 & exec sleep 600"))
    until(lambda: machine.pid("one"), "the program runs")

    def members() -> set[int]:
        return cgroups.members(cgroups.hierarchies(), f"{machine.cluster.cgroup}/node1")

    until(lambda: one in members() and len(members()) >= 4, "process 1, the supervisor, the program, its child")
    assert process_one.kill(units.machine_lock(machine.folder)) == 1
    assert process_one.kill(units.machine_lock(machine.folder)) == 0
    assert members() == set()
    assert units.supervisor_pid(machine.folder) == 0 and machine.pid("one") == 0


def test_a_gentle_end_stops_the_programs_first(machine: Machine) -> None:
    one = machine.start()
    machine.want(machine.program("one", "trap 'echo stopped; exit 0' TERM; sleep 600 & wait"))
    until(lambda: machine.pid("one"), "the program runs")
    log = Path(machine.cluster.log_dir("node1"), "one.log")
    until(lambda: "sleep" in machine.run("sh", "-c", "cat /proc/[0-9]*/comm", check=False), "the trap is set")
    os.kill(one, signal.SIGTERM)
    until(lambda: not machine.one, "the node ends")
    assert log.read_text() == "stopped\n"


def test_a_pid_of_the_node_names_no_process_of_the_machine(machine: Machine) -> None:
    """state.json is within reach of the node: whatever it says, only processes of the node are meant."""
    one = machine.start()
    assert process_one.outer_pid(one, 1) == one
    assert process_one.outer_pid(one, os.getpid()) == 0
    assert process_one._searched(os.stat(f"/proc/{one}/ns/pid").st_ino, 1) == one  # older kernels


def test_limits_are_what_the_node_has(machine: Machine) -> None:
    machine.start(cpus=1, memory=1 << 30)
    code = (
        "from nodelib import cgroups; from agent.node.edge.machine import Machine; "
        "facts = Machine('/var/lib/kubelet').facts(); "
        "print(cgroups.is_part_of_machine(), cgroups.cpus_here(), facts.cpus, facts.memory)"
    )
    line = ["env", f"PYTHONPATH={PROJECT}", sys.executable, "-c", code]
    assert machine.run(*line).split() == ["True", "1", "1", str(1 << 30)]


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("max 100000", os.cpu_count()), ("150000 100000", min(2, os.cpu_count() or 1)), ("1000 100000", 1), ("", None)],
)
def test_cpus_of_a_v2_root(tmp_path: Path, text: str, cpus: int | None) -> None:
    if text:
        (tmp_path / "cpu.max").write_text(text + "\n")
    found = cgroup_mounts.cpus_here(cgroup_mounts.Mounts(2, {"": str(tmp_path)}))
    assert found == (cpus or os.cpu_count())


def test_a_link_that_a_pod_left_is_not_followed(machine: Machine) -> None:
    """A folder of the tree replaced by a link to this machine's: the next start must not build through it."""
    machine.start()
    victim = Path(machine.cluster.dir, "victim")
    victim.mkdir()
    machine.run("sh", "-c", f"mv /srv /old; ln -s {victim} /srv; mv /var/cache /old2; ln -s {victim} /var/cache")
    machine.run("sh", "-c", f"ln -s {victim} /var/lib/etcd2; umount /var/lib/etcd && rmdir /var/lib/etcd && "
                f"ln -s {victim} /var/lib/etcd")  # fmt: skip
    os.kill(machine.one, signal.SIGKILL)
    until(lambda: not machine.one, "the lock is free")
    machine.start()
    assert list(victim.iterdir()) == []
    assert machine.run("sh", "-c", "touch /var/lib/etcd/x; ls -d /srv/ /var/lib/etcd/x").split() == [
        "/srv/",
        "/var/lib/etcd/x",
    ]
    assert list(victim.iterdir()) == []


def test_hiding_secrets_removes_nothing_of_this_machine(machine: Machine) -> None:
    """A pod made folders of its node's /etc links to this machine's: the same names there are not removed."""
    machine.start()
    victim = Path(machine.cluster.dir, "victim")
    Path(victim, "private").mkdir(parents=True)
    for name in ("private/key.pem", "ssh_host_rsa_key"):
        Path(victim, name).write_text("of this machine")
    machine.run("sh", "-c", f"for name in ssl ssh; do rm -rf /etc/$name; ln -s {victim} /etc/$name; done")
    os.kill(machine.one, signal.SIGKILL)
    until(lambda: not machine.one, "the lock is free")
    machine.start()
    assert {path.name for path in victim.rglob("*")} == {"private", "key.pem", "ssh_host_rsa_key"}


def test_what_this_machine_keeps_from_its_users_is_not_in_a_node(machine: Machine) -> None:
    """Keys of certificates are in many folders (letsencrypt, pki/tls, postgresql): all have modes in common."""
    assert "/etc/shadow" in machine_root.private("/etc")
    machine.start()
    own = {f"/etc/{one}" for one in ("cni/net.d", "containerd", "kubernetes")}
    left = set(machine.run("sh", "-c", "find /etc ! -type l ! -perm -o=r").split()) & set(machine_root.private("/etc"))
    assert left <= own
    machine.run("sh", "-c", "umask 077; echo mine > /etc/of-this-node; echo mine > /etc/shadow")
    os.kill(machine.one, signal.SIGKILL)
    until(lambda: not machine.one, "the lock is free")
    machine.start()
    assert machine.run("cat", "/etc/of-this-node", "/etc/shadow") == "mine\nmine", "its own files stay"


@pytest.mark.parametrize("kind", ["mkfifo {0}", "mkdir -p {0}/inner", "touch {0}"])
def test_whatever_a_pod_left_in_the_place_of_a_mount_the_node_starts(machine: Machine, kind: str) -> None:
    """A pipe was opened, and `up` and `start` waited for whoever would write to it; the others made them fail."""
    machine.start()
    for path in ("/etc/hosts", "/var/lib/cni", "/srv"):
        machine.run("sh", "-c", f"umount {path}; rm -rf {path}; {kind.format(path)}", check=False)
    os.kill(machine.one, signal.SIGKILL)
    until(lambda: not machine.one, "the lock is free")
    machine.start()
    assert "localhost" in machine.run("cat", "/etc/hosts")
    assert machine.run("sh", "-c", "touch /var/lib/cni/x /srv/x && echo ok") == "ok"


def test_a_mount_point_of_any_name_disturbs_no_node(machine: Machine) -> None:
    """What is root in a node, and with FUSE any user of this machine, chooses such names."""
    machine.start()
    folder = "$(printf '/tmp/a\\377b \\\\u0041\\\\N{x} \\303\\251')"
    machine.run("sh", "-c", f'mkdir "{folder}" && mount -t tmpfs none "{folder}"')
    machine.start(["/sbin/nothing"])
    until(lambda: machine.one, "it lives")


def test_a_cluster_folder_on_an_overlay(machine: Machine, tmp_path: Path) -> None:
    """As in most containers: the layers of a node's own overlays are in memory then."""
    below, state = tmp_path / "below", tmp_path / "state"
    for folder in (below, state):
        folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", str(below)], check=True)
    for name in ("lower", "upper", "work"):
        (below / name).mkdir()
    layers = f"lowerdir={below}/lower,upperdir={below}/upper,workdir={below}/work"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", layers, str(state)], check=True)
    machine.cluster = replace(machine.cluster, root=str(state))
    try:
        machine.start()
        machine.run("touch", "/etc/nw-here", "/root/nw-here")
        assert machine.run("ls", "/etc/nw-here") == "/etc/nw-here" and not os.path.exists("/etc/nw-here")
    finally:
        machine.remove()
        for folder in (state, below):
            subprocess.run(["umount", str(folder)], check=True)
