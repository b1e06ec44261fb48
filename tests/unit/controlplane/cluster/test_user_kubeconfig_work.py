"""The user's kubeconfig on disk: owner, mode, links, locks, files that are broken, and what `down` takes out again."""

from __future__ import annotations

import os
import stat
import threading
import time
from pathlib import Path

import pytest
import yaml

from controlplane.cluster.edge import user_file
from controlplane.cluster.model import Cluster
from controlplane.cluster.work import user_kubeconfig
from nodelib.errors import Temporary
from nodelib.kube.access import ClusterAccess, render_kubeconfig


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def cluster(tmp_path: Path, name: str = "lab") -> Cluster:
    made = Cluster(name, "10.89.0.0/24", root=str(tmp_path / "state"))
    Path(made.dir).mkdir(parents=True)
    access = ClusterAccess(f"https://{name}:6443", ca_data=b"ca", cert_data=name.encode(), key_data=b"key")
    Path(made.admin_kubeconfig).write_text(render_kubeconfig(access))
    return made


def merge(made: Cluster, option: str | None, variable: str) -> tuple[user_kubeconfig.Outcome, ...]:
    """What `up` does."""
    return user_kubeconfig.merge(made, user_kubeconfig.choose(made, option, variable))


def contexts(path: Path) -> list[str]:
    return [one["name"] for one in yaml.safe_load(path.read_text())["contexts"]]


def test_a_new_file_in_the_home_directory(tmp_path: Path, home: Path) -> None:
    (done,) = merge(cluster(tmp_path), None, "")
    file = home / ".kube/config"
    assert (done.path, done.current, done.problem) == (str(file), "nodewright-lab", "")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert os.listdir(home / ".kube") == ["config"], "no lock and no draft is left"


@pytest.mark.skipif(os.geteuid() != 0, reason="makes files of another user")
def test_under_sudo_the_files_of_the_user_stay_the_user_s(tmp_path: Path, home: Path) -> None:
    os.chown(home, 1234, 1235)
    merge(cluster(tmp_path), None, "")
    file = home / ".kube/config"
    assert [(one.stat().st_uid, one.stat().st_gid) for one in (home / ".kube", file)] == [(1234, 1235)] * 2
    os.chown(file, 1236, 1237)
    file.chmod(0o640)
    merge(cluster(tmp_path, "two"), None, "")
    assert contexts(file) == ["nodewright-lab", "nodewright-two"]
    known = file.stat()
    assert (known.st_uid, known.st_gid, stat.S_IMODE(known.st_mode)) == (1236, 1237, 0o640)


def test_a_link_is_followed(tmp_path: Path, home: Path) -> None:
    (home / ".kube").mkdir()
    (home / "dotfiles").write_text("")
    (home / ".kube/config").symlink_to("../dotfiles")
    merge(cluster(tmp_path), None, "")
    assert (home / ".kube/config").is_symlink()
    assert contexts(home / "dotfiles") == ["nodewright-lab"]


@pytest.mark.parametrize("damage", [b"clusters: [", b"\xff\xfe", b"- a list\n", b"x" * (17 << 20)], ids=len)
def test_a_broken_file_is_left_as_it_is(tmp_path: Path, home: Path, damage: bytes) -> None:
    file = home / "config"
    file.write_bytes(damage)
    lab = cluster(tmp_path)
    (done,) = merge(lab, str(file), "")
    assert str(file) in done.problem and "left as it is" in done.problem
    (kept,) = user_kubeconfig.remove(lab)
    assert str(file) in kept.problem
    assert file.read_bytes() == damage
    assert os.listdir(home) == ["config"]


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_what_is_no_file_is_left_alone(tmp_path: Path, home: Path, kind: str) -> None:
    path = home / "config"
    path.mkdir() if kind == "folder" else os.mkfifo(path)
    (done,) = merge(cluster(tmp_path), str(path), "")
    assert "left as it is" in done.problem
    assert path.exists()


def test_down_takes_out_what_up_put_in_and_nothing_else(tmp_path: Path, home: Path) -> None:
    lab, two = cluster(tmp_path), cluster(tmp_path, "two")
    file = home / "config"
    for one in (lab, two):
        merge(one, str(file), "")
    assert user_kubeconfig.remove(lab) == ()
    assert contexts(file) == ["nodewright-two"]
    assert yaml.safe_load(file.read_text())["current-context"] == "nodewright-two"
    assert user_kubeconfig.remove(two) == ()
    left = yaml.safe_load(file.read_text())
    assert (left["clusters"], left["contexts"], left["users"], left["current-context"]) == ([], [], [], "")


def test_a_file_that_the_user_removed_is_not_made_by_down(tmp_path: Path, home: Path) -> None:
    lab = cluster(tmp_path)
    merge(lab, str(home / "config"), "")
    (home / "config").unlink()
    assert user_kubeconfig.remove(lab) == ()
    assert os.listdir(home) == []


def test_a_second_up_goes_to_the_same_files(tmp_path: Path, home: Path) -> None:
    lab = cluster(tmp_path)
    merge(lab, str(home / "a"), "")
    assert [one.path for one in merge(lab, None, str(home / "other"))] == [str(home / "a")]
    merge(lab, str(home / "b"), "")
    assert user_kubeconfig.remove(lab) == ()
    assert contexts(home / "a") == contexts(home / "b") == []


@pytest.mark.parametrize("again", [None, ""])
def test_a_cluster_raised_without_it_stays_without_it(tmp_path: Path, home: Path, again: str | None) -> None:
    lab = cluster(tmp_path)
    assert merge(lab, "", "") == ()
    assert merge(lab, again, str(home / "config")) == ()
    assert os.listdir(home) == []


@pytest.mark.parametrize("option", ["", "mine"])
def test_a_choice_is_kept_although_up_failed(tmp_path: Path, home: Path, option: str) -> None:
    lab = cluster(tmp_path)
    user_kubeconfig.choose(lab, option and str(home / option), "")
    assert [one.path for one in merge(lab, None, "")] == ([str(home / option)] if option else [])


def test_a_cluster_s_own_file_is_no_user_s(tmp_path: Path, home: Path) -> None:
    """`export KUBECONFIG=$(nodewright kubeconfig)` for one cluster, then `up` of another."""
    lab, two = cluster(tmp_path), cluster(tmp_path, "two")
    before = Path(lab.admin_kubeconfig).read_text()
    (done,) = merge(two, None, lab.admin_kubeconfig)
    assert done.path == str(home / ".kube/config")
    assert Path(lab.admin_kubeconfig).read_text() == before


def test_clusters_raised_at_once_share_the_file(tmp_path: Path, home: Path) -> None:
    made = [cluster(tmp_path, f"c{number}") for number in range(8)]
    threads = [threading.Thread(target=merge, args=(one, None, "")) for one in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(contexts(home / ".kube/config")) == [one.context for one in made]


def test_a_lock_that_stays_is_named(home: Path) -> None:
    (home / "config.lock").touch()
    with pytest.raises(Temporary) as caught, user_file.locked(str(home / "config"), wait=0.1):
        pass
    assert f"rm -f {home / 'config.lock'}" in caught.value.action
    assert (home / "config.lock").exists()


def test_a_lock_that_a_power_cut_left_is_removed(home: Path) -> None:
    lock = home / "config.lock"
    lock.touch()
    os.utime(lock, (1_600_000_000, 1_600_000_000))
    with user_file.locked(str(home / "config"), wait=0.1):
        assert lock.stat().st_mtime > 1_600_000_000
    assert not lock.exists()


def test_a_lock_of_another_program_is_waited_for(home: Path) -> None:
    lock = home / "config.lock"
    lock.touch()
    threading.Timer(0.2, lock.unlink).start()
    began = time.monotonic()
    with user_file.locked(str(home / "config"), wait=60):
        assert time.monotonic() - began > 0.1
        assert lock.exists()
    assert not lock.exists()


def foreign(context: str, ca: bytes = b"theirs") -> str:
    """The kubeconfig of a cluster of another machine that has the same name and addresses."""
    access = ClusterAccess("https://lab:6443", ca_data=ca, cert_data=b"crt", key_data=b"key")
    return render_kubeconfig(access, cluster=context, user=context)


def test_the_entries_of_another_machine_s_cluster_are_left_alone(tmp_path: Path, home: Path) -> None:
    lab, file = cluster(tmp_path), home / "config"
    file.write_text(foreign(lab.context))
    (done,) = merge(lab, str(file), "")
    assert "of another cluster" in done.problem and f"delete-context {lab.context}" in done.problem
    (kept,) = user_kubeconfig.remove(lab)
    assert "of another cluster" in kept.problem
    assert file.read_text() == foreign(lab.context)


@pytest.mark.parametrize("part", ["contexts", "users"])
def test_one_foreign_entry_is_enough(tmp_path: Path, home: Path, part: str) -> None:
    lab, file = cluster(tmp_path), home / "config"
    entry = {"contexts": {"context": {"cluster": "work", "user": "me"}}, "users": {"user": {"token": "x"}}}[part]
    file.write_text(before := yaml.safe_dump({part: [{"name": lab.context, **entry}]}))
    (done,) = merge(lab, str(file), "")
    assert done.problem and file.read_text() == before


def test_a_new_authority_of_the_same_cluster_is_its_own(tmp_path: Path, home: Path) -> None:
    lab, file = cluster(tmp_path), home / "config"
    merge(lab, str(file), "")
    Path(lab.admin_kubeconfig).write_text(foreign("x", b"new"))
    (done,) = merge(lab, str(file), "")
    assert done.problem == "" and len(yaml.safe_load(file.read_text())["clusters"]) == 1
    assert user_kubeconfig.remove(lab) == () and contexts(file) == []


def test_who_could_read_the_file_may_not_read_the_key_of_a_cluster(tmp_path: Path, home: Path) -> None:
    file = home / "config"
    file.write_text("")
    file.chmod(0o666)
    merge(cluster(tmp_path), str(file), "")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_what_is_written_goes_where_it_was_read(tmp_path: Path) -> None:
    """Whoever owns the folder swaps it for a link to another's between the two."""
    mine, others = tmp_path / "mine", tmp_path / "others"
    for folder in (mine, others):
        folder.mkdir()
        (folder / "config").write_text(folder.name)
    before = user_file.read(str(mine / "config"))
    mine.rename(tmp_path / "away")
    mine.symlink_to(others)
    with pytest.raises(OSError, match="changed meanwhile"):
        user_file.write(str(mine / "config"), "evil", before)
    assert (others / "config").read_text() == "others" and os.listdir(others) == ["config"]


@pytest.mark.parametrize("damage", ["", "clusters: [", "- a list", "{}", None])
def test_without_its_own_file_down_still_finds_its_entries(tmp_path: Path, home: Path, damage: str | None) -> None:
    lab, file = cluster(tmp_path), home / "config"
    merge(lab, str(file), "")
    Path(lab.admin_kubeconfig).unlink()
    if damage is not None:
        Path(lab.admin_kubeconfig).write_text(damage)
    assert user_kubeconfig.remove(lab) == () and contexts(file) == []
