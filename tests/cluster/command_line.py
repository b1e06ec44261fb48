"""The command line as a user runs it, and what a cluster may leave on the machine."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from controlplane.cluster.model import Cluster

PROJECT = Path(__file__).resolve().parents[2]
RAISED = "NODEWRIGHT_TEST_RAISED"  # a folder with a file for each cluster that the workers of a run raise
STATE = Path(os.environ.get("NODEWRIGHT_STATE", "/var/lib/nodewright"))
_SYSCTLS = ("net/ipv4/ip_forward", "net/ipv4/conf/all/route_localnet", "net/bridge/bridge-nf-call-iptables")
_DIRS = ("/etc/kubernetes", "/etc/containerd", "/etc/cni", "/opt/cni", "/var/lib/cni", "/var/lib/kubelet")


def cli(
    *arguments: str, check: bool = True, timeout: float = 600, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command of the project to its end."""
    _note(arguments)
    done = subprocess.run(
        [sys.executable, "-m", "cli", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "PYTHONPATH": str(PROJECT), **environment},
        cwd="/",
    )
    if check and done.returncode != 0:
        logs = _log_tails(_named(arguments)) if arguments[0] == "up" else ""
        raise AssertionError(f"{arguments}: status {done.returncode}\n{done.stdout}\n{done.stderr}\n{logs}")
    return done


@contextlib.contextmanager
def lent_or_raised(variable: str, name: str, *words: str, timeout: float) -> Iterator[Cluster]:
    """The cluster that the environment's `variable` names, left as it is; without one `name`, raised with these words
    of `up` and taken down."""
    if lent := os.environ.get(variable, ""):
        yield _cluster(lent)
    else:
        with raised(name, *words, timeout=timeout) as cluster:
            yield cluster


@contextlib.contextmanager
def raised(name: str, *words: str, timeout: float) -> Iterator[Cluster]:
    """A cluster of its own, raised with these words of `up` and taken down unless the block fails."""
    cli("down", "--name", name, "--plain")
    cli("up", "--name", name, *words, "--plain", timeout=timeout)
    yield _cluster(name)
    cli("down", "--name", name, "--plain")


def _cluster(name: str) -> Cluster:
    return Cluster.from_json(json.loads((STATE / name / "cluster.json").read_text()), str(STATE))


def _named(arguments: Sequence[str]) -> str:
    return arguments[arguments.index("--name") + 1] if "--name" in arguments else ""


def _note(arguments: Sequence[str]) -> None:
    """Write down which cluster is going to be raised, for whoever has to take it down if this worker cannot."""
    name, folder = _named(arguments), os.environ.get(RAISED, "")
    if folder and name and arguments[0] == "up" and not (STATE / name).exists():
        Path(folder, name).touch()


def _log_tails(name: str, lines: int = 12) -> str:
    """The last log lines of every daemon of the cluster: its folder is gone before anybody could read them."""
    found = []
    for path in sorted(STATE.glob(f"{name}/*/log/*.log")) if name else []:
        tail = path.read_text(errors="replace").splitlines()[-lines:]
        found += [f"--- {path}", *(line[:300] for line in tail)]
    return "\n".join(found)


def start(*arguments: str) -> subprocess.Popen[str]:
    """Start a command in its own session, so that it can be killed."""
    _note(arguments)
    return subprocess.Popen(
        [sys.executable, "-m", "cli", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        cwd="/",
        start_new_session=True,
    )


@dataclass(frozen=True)
class Traces:
    """What is on the machine that a cluster could have brought. Other clusters' and programs' things count too, so
    two snapshots are equal only if the one between them left nothing."""

    processes: frozenset[str]
    links: frozenset[str]
    namespaces: frozenset[str]
    mounts: frozenset[str]
    cgroups: frozenset[str]
    rules: tuple[str, ...]
    sysctls: tuple[str, ...]
    files: frozenset[str]


def traces(name: str) -> Traces:
    """A snapshot of all that concerns the cluster `name`, and of the host's rules and sysctls as they are."""
    return Traces(
        processes=frozenset(_processes(name)),
        links=frozenset(link for link in os.listdir("/sys/class/net") if link == f"nw-{name}"),
        namespaces=frozenset(_lines("/proc/self/mountinfo", lambda line: "nsfs" in line and f"/{name}/" in line)),
        mounts=frozenset(_lines("/proc/self/mountinfo", lambda line: f"/{name}" in line.split()[4])),
        # Not deeper: what other clusters and tests have there comes and goes meanwhile.
        cgroups=frozenset(
            str(path) for depth in ("", "*/") for path in Path("/sys/fs/cgroup").glob(f"{depth}nodewright/{name}")
        ),
        rules=tuple(line for line in _rules() if f"nodewright:{name}" in line or f"nw-{name}" in line),
        sysctls=tuple(_read(f"/proc/sys/{path}") for path in _SYSCTLS),
        files=frozenset(str(path) for path in (STATE / name, *map(Path, _DIRS)) if path.exists()),
    )


def differences(before: Traces, after: Traces) -> dict[str, object]:
    """Fields that differ, for an assertion that shows them."""
    pairs = {field.name: (getattr(before, field.name), getattr(after, field.name)) for field in fields(Traces)}
    return {key: value for key, value in pairs.items() if value[0] != value[1]}


def network_namespaces(name: str) -> set[int]:
    """Inodes of the cluster's network namespaces."""
    return {path.stat().st_ino for path in (STATE / name / "ns").glob("*.net")}


def namespaces_in_use() -> set[int]:
    """Inodes of every network namespace that a process is in."""
    found = set()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                found.add(os.stat(f"/proc/{entry}/ns/net").st_ino)
            except OSError:
                continue
    return found


def _processes(name: str) -> list[str]:
    found = []
    for entry in os.listdir("/proc"):
        # A zombie is dead: how soon its new parent reaps it is not the cluster's doing.
        dead = _read(f"/proc/{entry}/stat").rpartition(")")[2].split()[:1] == ["Z"]
        if entry.isdigit() and not dead and f"/nodewright/{name}/" in _read(f"/proc/{entry}/cgroup"):
            found.append(f"{entry} {_read(f'/proc/{entry}/comm').strip()}")
    return found


def _rules() -> list[str]:
    lines = []
    for command in ("iptables-nft-save", "iptables-save"):
        lines += subprocess.run([command], capture_output=True, text=True).stdout.splitlines()
    return lines


def _lines(path: str, wanted: Callable[[str], bool]) -> list[str]:
    return [line for line in _read(path).splitlines() if wanted(line)]


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def until(condition: Callable[[], object], what: str, seconds: float = 90) -> None:
    """Wait for a condition with a generous limit."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not in {seconds:g} s: {what}"
        time.sleep(0.1)
