"""Who listens, by this kernel's own tables; and the pods' processes, on folders that stand for cgroup mounts."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from controlplane.machine.edge import listeners
from controlplane.machine.edge.cgroups import Hierarchies
from controlplane.machine.model import Listener

_UID = "6ccc73ed-992b-4464-addd-fe88e5fd216d"


@pytest.mark.parametrize(
    ("kind", "protocol"), [(socket.SOCK_STREAM, "tcp"), (socket.SOCK_DGRAM, "udp")], ids=["tcp", "udp"]
)
@pytest.mark.parametrize(
    ("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")], ids=["ipv4", "ipv6"]
)
def test_a_socket_is_found_while_it_listens(
    kind: socket.SocketKind, protocol: str, family: socket.AddressFamily, address: str
) -> None:
    with socket.socket(family, kind) as one:
        try:
            one.bind((address, 0))
        except OSError:
            pytest.skip("no such family here")
        wanted = Listener(protocol, address, one.getsockname()[1])
        if kind is socket.SOCK_STREAM:
            assert wanted not in (listeners.of_process(os.getpid()) or ()), "bound, not yet listening"
            one.listen()
        assert wanted in (listeners.of_process(os.getpid()) or ())
    assert wanted not in (listeners.of_process(os.getpid()) or ())


def test_a_connection_is_no_listener() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        found = listeners.of_process(os.getpid()) or ()
        assert Listener("tcp", "127.0.0.1", server.getsockname()[1]) in found
        assert Listener("tcp", "127.0.0.1", client.getsockname()[1]) not in found


def test_a_process_that_is_gone_is_unknown() -> None:
    assert listeners.of_process(0x7FFFFFF0) is None


@pytest.mark.parametrize(
    "pod",
    [
        f"kubepods/pod{_UID}",
        f"kubepods/burstable/pod{_UID}",
        f"kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{_UID.replace('-', '_')}.slice",
    ],
    ids=["guaranteed", "burstable", "systemd"],
)
def test_a_pod_has_the_first_process_of_its_containers(tmp_path: Path, pod: str) -> None:
    folder = tmp_path / "pids/nodewright/lab/node1" / pod
    for name, pids in (("", ""), ("empty", ""), ("sandbox", "0\n4711\n4712\n")):
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "cgroup.procs").write_text(pids)
    trees = Hierarchies((str(tmp_path / "freezer"), str(tmp_path / "pids")), "")
    assert listeners.pod_processes(trees, "/nodewright/lab/node1") == {_UID: 4711}
    assert listeners.pod_processes(trees, "/nodewright/other/node1") == {}


def test_what_a_pod_nests_is_not_taken_for_a_pod(tmp_path: Path) -> None:
    other = "11111111-2222-3333-4444-555555555555"
    for path, pid in (
        (f"kubepods/pod{_UID}/box", 1),
        (f"kubepods/pod{_UID}/box/pod{other}", 2),
        (f"made/pod{other}", 3),
    ):
        folder = tmp_path / "n" / path
        folder.mkdir(parents=True)
        (folder / "cgroup.procs").write_text(f"{pid}\n")
    assert listeners.pod_processes(Hierarchies((str(tmp_path),), ""), "/n") == {_UID: 1}
