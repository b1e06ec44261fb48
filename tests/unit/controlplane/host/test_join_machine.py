"""`join` on a machine that is something already, and what a `leave` that is interrupted leaves behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.commands import join as command
from controlplane.host.model import KnownCluster, Request
from controlplane.host.plan.join import OF_OTHERS
from controlplane.host.work import leave
from controlplane.host.work.join import check_cluster, check_machine
from controlplane.machine.edge.locks import directory_lock
from nodelib.errors import Conflict, NodewrightError, Permanent
from nodelib.kube.access import ClusterAccess, save_kubeconfig
from tests.unit.controlplane.host.test_join_authority import Authority


@pytest.mark.parametrize("path", [Path(one) for one in OF_OTHERS], ids=lambda one: one.name)
def test_the_node_of_others_is_not_written_over(tmp_path: Path, path: Path) -> None:
    """On a control plane of kubeadm, join wrote over the authority of the cluster, and leave removed all pods."""
    folder = tmp_path / "nodewright"
    others = [f"{tmp_path}{one}" for one in OF_OTHERS]
    check_machine(str(folder), others)
    found = Path(f"{tmp_path}{path}")
    found.parent.mkdir(parents=True)
    found.touch()
    with pytest.raises(Conflict, match=path.name):
        check_machine(str(folder), others)
    folder.mkdir()
    check_machine(str(folder), others)  # an earlier join, which may have been interrupted


def test_what_says_that_a_node_is_ours_goes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kubelet, config = tmp_path / "kubelet", tmp_path / "kubelet.conf"
    folder = kubelet / "nodewright"
    for one in (folder, kubelet / "pods", kubelet / "zzz"):
        one.mkdir(parents=True)
    config.touch()
    removed: list[str] = []

    def remove(path: str) -> None:
        assert folder.exists() and not config.exists()
        removed.append(Path(path).name)
        if len(removed) == 2:
            raise OSError("interrupted")

    monkeypatch.setattr("nodelib.file_trees.remove", remove)
    with pytest.raises(OSError, match="interrupted"):
        leave.remove_files(str(kubelet), [str(config)], str(folder))
    assert "nodewright" not in removed
    monkeypatch.undo()
    leave.remove_files(str(kubelet), [str(config)], str(folder))
    assert not list(kubelet.iterdir())


async def test_a_leave_that_has_removed_the_pods_needs_no_runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has ended the runtime by then: run again, it asked for one to be started, and never came to an end."""
    drop_in = tmp_path / "50-nodewright.conf"
    drop_in.write_text("containerRuntimeEndpoint: unix:///run/mine.sock\n")
    asked: list[str] = []

    class Runtime:
        def __init__(self, path: str) -> None:
            asked.append(path)

        async def list_sandboxes(self) -> list[object]:
            if len(asked) == 1:
                raise Permanent("no answer")
            return []

        async def close(self) -> None:
            pass

    monkeypatch.setattr(leave, "Cri", Runtime)
    with pytest.raises(NodewrightError, match="no answer"):
        await leave.remove_pods(str(drop_in))
    assert drop_in.exists()
    for _ in range(2):
        assert await leave.remove_pods(str(drop_in)) == 0
    assert asked == ["/run/mine.sock"] * 2 and not drop_in.exists()


def test_two_joins_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one would write its node's name and token into the files of the first."""
    monkeypatch.setattr(command, "need_root", lambda name: None)
    monkeypatch.setattr(command, "LOCK", str(tmp_path / "lock"))
    with directory_lock(str(tmp_path / "lock")), pytest.raises(Conflict, match="another `join` or `leave`"):
        command.run(Request(), plain=True)


def test_a_node_of_another_cluster_is_not_joined_to_this_one(tmp_path: Path) -> None:
    """Its agent went on in the other one, and join said that the Node is Ready."""
    old, new, other = (Authority(name).pem for name in ("old", "new", "other"))
    path = str(tmp_path / "kubelet.conf")
    here, there = "https://10.0.0.1:6443", "https://10.0.0.2:6443"
    check_cluster(KnownCluster(ClusterAccess(here, ca_data=new)), path)  # of no cluster yet
    save_kubeconfig(path, ClusterAccess(here, ca_data=old, token="x"))
    for server, authority in ((here, old), (there, old), (here, old + new), (here, None)):
        check_cluster(KnownCluster(ClusterAccess(server, ca_data=authority)), path)
    for server, authority in ((here, other), (there, other), (there, None)):
        with pytest.raises(Conflict, match=r"10\.0\.0\.1"):
            check_cluster(KnownCluster(ClusterAccess(server, ca_data=authority)), path)
    Path(path).write_text("damaged")
    check_cluster(KnownCluster(ClusterAccess(there, ca_data=other)), path)
