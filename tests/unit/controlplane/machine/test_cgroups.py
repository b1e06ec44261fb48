"""Which of a cluster's cgroups `down` removes, on folders that stand for the mounts."""

from __future__ import annotations

import os
from pathlib import Path

from controlplane.machine.edge.cgroups import Hierarchies, ensure, remove, remove_if_empty


def test_a_folder_where_no_tree_is_mounted_is_emptied_too(tmp_path: Path) -> None:
    """/sys/fs/cgroup/hugetlb without a mount: containerd makes its paths there all the same."""
    trees = Hierarchies((str(tmp_path / "cpu"),), str(tmp_path / "unified"))
    left = tmp_path / "hugetlb/nodewright/lab/node1"
    for path in (tmp_path / "cpu", tmp_path / "unified", left):
        path.mkdir(parents=True)
    (tmp_path / "alias").symlink_to("cpu")
    assert ensure(trees, "/nodewright/lab/node1") == [f"{root}/nodewright/lab/node1" for root in trees.roots]
    assert trees.beside == (str(tmp_path / "hugetlb"),)
    remove(trees, "/nodewright/lab")
    remove_if_empty(trees, "/nodewright")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["alias", "cpu", "hugetlb", "unified"]


def test_another_clusters_folder_stays(tmp_path: Path) -> None:
    trees = Hierarchies((str(tmp_path / "cpu"),), "")
    (tmp_path / "hugetlb/nodewright/other").mkdir(parents=True)
    (tmp_path / "cpu").mkdir()
    remove(trees, "/nodewright/lab")
    remove_if_empty(trees, "/nodewright")
    assert (tmp_path / "hugetlb/nodewright/other").is_dir()


def test_what_a_pod_nested_deeper_than_any_stack_is_removed(tmp_path: Path) -> None:
    at = str(tmp_path / "cluster")
    for _ in range(1500):
        os.mkdir(at)
        at = f"{at}/d"
    remove(Hierarchies((), str(tmp_path)), "/cluster")
    assert not (tmp_path / "cluster").exists()
