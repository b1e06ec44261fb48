"""Files in the places of which others may put a pipe, a device, or something without end."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from controlplane.cluster.model import Cluster, Node
from controlplane.cluster.work import logins, nodes
from controlplane.config.edge.sources import config_text
from controlplane.config.model import Registry
from nodelib.errors import Invalid, NotFound
from nodelib.files import bytes_of, holds, text_of
from nodelib.kube.access import load_kubeconfig


def pipe(tmp_path: Path, *, held: bool) -> str:
    """A pipe; `held`: somebody has it open and never writes."""
    path = str(tmp_path / "pipe")
    os.mkfifo(path)
    if held:
        os.open(path, os.O_RDWR | os.O_CLOEXEC)
    return path


@pytest.mark.parametrize("held", [True, False])
def test_nobody_waits_for_a_pipe(tmp_path: Path, held: bool) -> None:
    path, began = pipe(tmp_path, held=held), time.monotonic()
    assert text_of(path) == "" and not holds(path, "x")
    if held:
        with pytest.raises(TimeoutError):
            bytes_of(path, 100, 0.2)
    else:
        assert bytes_of(path, 100) == b""
    assert time.monotonic() - began < 5


def test_a_pipe_that_is_written_to_is_read(tmp_path: Path) -> None:
    """`--config <(make-one)`"""
    read, write = os.pipe()

    def late() -> None:
        os.write(write, b"a: 1")
        os.close(write)

    threading.Timer(0.1, late).start()
    try:
        assert bytes_of(f"/dev/fd/{read}", 100) == b"a: 1"
    finally:
        os.close(read)


def test_what_has_no_end_is_cut(tmp_path: Path) -> None:
    (tmp_path / "huge").write_bytes(b"")
    os.truncate(tmp_path / "huge", 1 << 40)
    assert len(bytes_of(str(tmp_path / "huge"), 5000)) == 5000
    assert not holds(str(tmp_path / "huge"), "x")
    assert len(text_of(str(tmp_path / "huge"))) <= 17 << 20
    with pytest.raises(OSError, match="not a file to be read"):
        bytes_of("/dev/zero", 10)


def test_the_kernel_s_own_files_are_read() -> None:
    assert text_of("/proc/sys/kernel/ostype") == "Linux\n", "it refuses reads of many MiB"


@pytest.mark.parametrize("kind", ["device", "folder", "missing"])
def test_a_file_of_a_cluster_that_is_none(tmp_path: Path, kind: str) -> None:
    path = {"device": "/dev/zero", "folder": str(tmp_path), "missing": str(tmp_path / "no")}[kind]
    with pytest.raises((Invalid, NotFound)):
        config_text(path)
    with pytest.raises(Invalid):
        load_kubeconfig(path)


@pytest.mark.parametrize("where", ["users: [{name: a, user: {token: 5}}]", "clusters: 5", "contexts: [{name: [a]}]"])
def test_a_kubeconfig_of_wrong_types(tmp_path: Path, where: str) -> None:
    whole = {
        "current-context": "a",
        "contexts": "[{name: a, context: {cluster: a, user: a}}]",
        "clusters": "[{name: a, cluster: {server: x}}]",
        "users": "[{name: a, user: {}}]",
    }
    key, _, value = where.partition(": ")
    text = "\n".join(f"{name}: {one}" for name, one in {**whole, key: value}.items())
    (tmp_path / "config").write_text(text)
    with pytest.raises(Invalid):
        load_kubeconfig(str(tmp_path / "config"))


def test_files_of_a_node_that_a_pod_replaced(tmp_path: Path) -> None:
    """`up` again: links are not followed, pipes not waited for."""
    made = Cluster("lab", "10.89.0.0/24", root=str(tmp_path))
    outside, path = tmp_path / "outside", tmp_path / "config.toml"
    outside.write_text("old")
    for target in (None, outside, Path("nowhere")):
        os.mkfifo(path) if target is None else path.symlink_to(target)
        nodes._rewrite(str(path), "new", 0o600)
        assert path.read_text() == "new" and not path.is_symlink() and path.stat().st_mode & 0o777 == 0o600
        assert nodes._rewrite(str(path), "newer", 0o600) and not nodes._rewrite(str(path), "newer", 0o600)
        path.unlink()
    assert outside.read_text() == "old"
    node = Node("node1", ("10.89.0.11",))
    folder = Path(made.node_dir("node1"), "etc-containerd/certs.d/docker.io")
    folder.mkdir(parents=True)
    os.mkfifo(folder / "hosts.toml")
    logins.write_hosts(made, node)


def test_a_password_in_a_pipe_that_nobody_closes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = pipe(tmp_path, held=False)
    options = replace(Cluster("lab", "").options, custom=replace(Cluster("lab", "").options.custom))
    made = Cluster("lab", "10.89.0.0/24", options, root=str(tmp_path))
    registry = Registry("r.test", username="me", password_file=path)
    made = replace(made, options=replace(options, custom=replace(options.custom, registries=(registry,))))
    with pytest.raises(Invalid, match="holds no password"):
        logins.read(made, {})
