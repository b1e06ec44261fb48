"""The Debian package: what it says of itself, and dpkg putting it on a root and taking it off again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import fields
from pathlib import Path

import pytest

from cli.project import PROJECT
from cni.settings import CniSettings
from cni.spec.configuration import TYPE
from controlplane.host.plan import package as plan
from controlplane.host.plan.host_files import RECORD, host_files
from controlplane.host.work.package import Commit, build
from nodelib.errors import Invalid
from nodelib.version import KUBERNETES_VERSION

COMPILED = "Wheel-Version: 1.0\nTag: cp311-cp311-manylinux_2_17_x86_64\nTag: cp311-cp311-manylinux2014_x86_64\n"
STABLE = "Tag: cp39-abi3-manylinux_2_34_x86_64\n"
PURE = "Tag: py3-none-any\n"
LOCK = """--find-links /x

click==1 \\
    --hash=sha256:aa
    # via typer
mypy==2 \\
    --hash=sha256:bb
    # via nodewright (pyproject.toml)
shared==3 \\
    --hash=sha256:cc
    # via
    #   mypy
    #   click
typer==4 \\
    --hash=sha256:dd
    # via nodewright (pyproject.toml)
"""


def test_the_platform_is_that_of_the_wheels() -> None:
    assert plan.platform([COMPILED, STABLE, PURE]) == plan.Platform((3, 11), "amd64", (2, 34))
    arm = COMPILED.replace("x86_64", "aarch64")
    assert plan.platform([arm]).architecture == "arm64"
    for wheels in ([PURE], [COMPILED, arm], [COMPILED, COMPILED.replace("cp311", "cp312")]):
        with pytest.raises(Invalid, match="not for one"):
            plan.platform(wheels)


def test_only_what_the_daemons_import_is_packaged() -> None:
    kept = plan.runtime_lock(LOCK, ["typer>=0.16"])
    assert [line for line in kept.splitlines() if "==" in line] == ["click==1 \\", "shared==3 \\", "typer==4 \\"]
    assert kept.startswith("--find-links /x\n") and "sha256:bb" not in kept


def test_control() -> None:
    made_for = plan.Platform((3, 11), "amd64", (2, 34))
    there = {"iptables": "1.8.9-2", "conntrack": "1:1.4.7-1+b2", "ca-certificates": "20230311+deb12u1"}
    text = plan.control("0.1+git", made_for, there, 7)
    fields = dict(line.split(": ", 1) for line in text.splitlines() if not line.startswith(" "))
    wanted = fields["Depends"].split(", ")
    assert wanted[:3] == ["python3 (>= 3.11~)", "python3 (<< 3.12~)", "libc6 (>= 2.34)"]
    assert "iptables (>= 1.8.9~)" in wanted and "conntrack (>= 1:1.4.7~)" in wanted and "mount" in wanted
    assert "ca-certificates (>= 20230311~)" in wanted
    assert (fields["Conflicts"], fields["Provides"]) == ("kubelet", f"kubelet (= {KUBERNETES_VERSION[1:]})")


def test_of_two_packages_the_one_of_the_later_commit_is_newer() -> None:
    older, newer = (plan.version("0.1.0", Commit(id * 40, time).date, id * 40) for id, time in (("f", 0), ("1", 60)))
    assert older == "0.1.0+git197001010000.ffffffff" < newer


def test_a_node_runs_on_packages_that_up_installs_too() -> None:
    listed = (PROJECT / "controlplane/packages.txt").read_text().splitlines()
    assert set(plan.RUNTIME) <= set(listed)


def test_files_lie_where_packages_have_theirs() -> None:
    packaged, by_hand = ({one.path for one in found} for found in (plan.files(), host_files("/srv")))
    assert len(packaged) == len(by_hand)
    assert not [path for path in packaged if path.startswith("/usr/local")]
    assert "/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf" not in packaged, "it is kubeadm's"
    assert plan.conffiles(packaged).split() == [one for one in packaged if one.startswith("/etc/")]
    drop_in = next(one.text for one in plan.files() if one.path.endswith("05-nodewright.conf"))
    assert "ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS" in drop_in


@pytest.mark.parametrize("name", ["preinst", "postinst", "prerm", "postrm"])
def test_the_scripts_are_for_any_sh(name: str) -> None:
    text = plan.scripts()[name]
    assert subprocess.run(["sh", "-n"], input=text, text=True).returncode == 0
    for argument in ("remove", "purge", "upgrade", "abort-install"):
        if name != "prerm":  # it looks for files of the package
            done = subprocess.run(["sh", "-c", text, name, argument], env={"PATH": "/usr/bin:/bin", "DPKG_ROOT": "/x"})
            assert done.returncode == 0
    assert " enable" not in text and " start " not in text


def test_dpkg_does_not_wait_for_a_kubelet_whose_certificate_nobody_approves(tmp_path: Path) -> None:
    """Its unit is being started until then, so `systemctl try-restart` comes back with the approval."""
    there, calls = tmp_path / "system", tmp_path / "calls"
    there.mkdir()
    for name, does in {
        "systemctl": f'echo "$@" >>{calls}; [ "$1" != try-restart ] || exec sleep 1000',
        "py3compile": f"nice >{tmp_path}/nice",
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    for name in ("modprobe", "sysctl"):
        (tmp_path / name).symlink_to("/bin/true")
    text = plan.scripts()["postinst"].replace("/run/systemd/system", str(there)).replace("timeout 60 ", "timeout 0.2 ")
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    line = ["sh", "-c", text, "postinst", "configure", "0.1"]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, done.stderr
    assert int((tmp_path / "nice").read_text()) >= 10, "the kubelet that runs meanwhile goes first"
    units = "kubelet.service nodewright-proxy.service"
    assert calls.read_text().splitlines() == ["daemon-reload", f"try-restart {units}"]
    assert done.stderr == f"nodewright: not all are ready yet, see: systemctl status {units}\n"


def test_a_machine_with_install_refuses_the_package_in_one_plain_line(tmp_path: Path) -> None:
    record = tmp_path / RECORD.lstrip("/")
    record.parent.mkdir(parents=True)
    record.write_text("{}")
    environment = {"PATH": "/usr/bin:/bin", "DPKG_ROOT": str(tmp_path)}
    line = ["sh", "-c", plan.scripts()["preinst"], "preinst", "install"]
    done = subprocess.run(line, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == (
        f"{plan.NAME}: nodewright install was run on this machine; run this first: nodewright uninstall\n"
    )


def gathered(work: Path) -> Path:
    """What `package` gathers, without downloading: the tree as it is, and no packages but a name."""
    info = work / "site" / "x.dist-info"
    info.mkdir(parents=True)
    (info / "WHEEL").write_text(COMPILED)
    with tarfile.open(work / "project.tar", "w") as archive:
        for name in (*plan.TREE, "README.md"):
            archive.add(PROJECT / name, name, filter=lambda one: None if "__pycache__" in one.name else one)
    return work


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg is not installed")
def test_the_package_of_a_commit_has_the_same_bytes_wherever_pip_ran(tmp_path: Path) -> None:
    made = []
    for name in ("one", "another"):
        work, stage = tmp_path / name, tmp_path / name / "stage"
        stage.mkdir(parents=True)
        info = gathered(work) / "site" / "x.dist-info"
        # pip writes the interpreter's path into scripts, and their checksums into RECORD.
        (info / "RECORD").write_text(f"../../bin/x,sha256={name},9\nx/__init__.py,sha256=same,0\n")
        moment = 1_700_000_000 if name == "one" else 1_710_000_000
        os.utime(info / "WHEEL", (moment, moment))
        made.append(build(stage, work, "0.1", Commit("1" * 40, 1795300000), work / "out").read_bytes())
    assert made[0] == made[1]


def dpkg(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}  # dpkg refuses to work without ldconfig
    line = [
        "dpkg",
        f"--root={root}",
        "--force-script-chrootless",
        "--force-depends",
        "--force-architecture",
        "--force-not-root",
        "--force-unsafe-io",
        *arguments,
    ]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, env={**os.environ, **path})


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg is not installed")
def test_dpkg_puts_it_on_a_root_and_takes_all_of_it_off(tmp_path: Path) -> None:
    stage, root = tmp_path / "stage", tmp_path / "root"
    stage.mkdir()
    made = build(stage, gathered(tmp_path), "0.1+git20261122.12345678", Commit("1" * 40, 1795300000), tmp_path / "out")
    assert made.name == "nodewright_0.1+git20261122.12345678_amd64.deb"
    for name in ("info", "updates"):
        (root / "var/lib/dpkg" / name).mkdir(parents=True)
    (root / "var/lib/dpkg/status").touch()

    done = dpkg(root, "--install", str(made))
    assert done.returncode == 0, done.stderr
    assert (root / "usr/bin/kubelet").read_text().endswith('exec /usr/lib/nodewright/project/bin/kubelet "$@"\n')
    assert not list((root / "etc").rglob("*.wants")), "nothing is enabled"
    # The interpreter of these tests has the packages.
    environment = {"PATH": "/usr/bin:/bin", "NODEWRIGHT_PYTHON": sys.executable}
    kubelet = [str(root / "usr/lib/nodewright/project/bin/kubelet"), "--version"]
    assert subprocess.run(kubelet, env=environment, capture_output=True, text=True).stdout == "Kubernetes v1.37.1\n"
    compiled = root / "usr/lib/nodewright/project/nodelib/__pycache__"
    compiled.mkdir(exist_ok=True)
    (compiled / "unknown.pyc").touch()  # dpkg does not know of it

    usual = {one.name: one.default for one in fields(CniSettings)}
    of_pods = (str(usual["conf_file"]), f"{usual['bin_dir']}/{TYPE}")
    for path in of_pods:  # the pod network has run here
        (root / path.lstrip("/")).parent.mkdir(parents=True)
        (root / path.lstrip("/")).touch()

    assert dpkg(root, "--verify", "nodewright").stdout == ""
    assert dpkg(root, "--remove", "nodewright").returncode == 0
    left = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and "dpkg" not in path.parts}
    own = {"etc/sysctl.d/99-nodewright.conf", "etc/modules-load.d/nodewright.conf"}
    assert left == {*own, *(path.lstrip("/") for path in of_pods)}, "an administrator's, and what pods need"
    assert dpkg(root, "--purge", "nodewright").returncode == 0
    assert [path for path in root.rglob("*") if "dpkg" not in path.parts and path.is_file()] == []
    assert not (root / "usr").exists()
