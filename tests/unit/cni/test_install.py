"""What the runtime reads: the .conflist, and the script it executes."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from ipaddress import ip_network
from pathlib import Path

import pytest

from cni.install import install_plugin, load_published, publish, shim_text, withdraw
from cni.settings import CniSettings, conflist
from cni.spec.configuration import parse_conf
from nodelib.errors import Invalid, Permanent

CIDRS = (ip_network("10.244.1.0/24"),)


def settings(folder: Path) -> CniSettings:
    return CniSettings(
        "node1",
        cluster_cidrs=(ip_network("10.244.0.0/16"),),
        socket=str(folder / "cni.sock"),
        data_dir=str(folder / "data"),
        conf_file=str(folder / "net.d" / "10-nodewright.conflist"),
        bin_dir=str(folder / "bin"),
    )


def test_publish_and_withdraw(tmp_path: Path) -> None:
    here = settings(tmp_path)
    assert publish(here, CIDRS, CIDRS)
    assert not publish(here, CIDRS, CIDRS)
    listed = json.loads(Path(here.conf_file).read_text())
    assert (listed["cniVersion"], listed["cniVersions"]) == ("1.0.0", ["0.4.0", "1.0.0", "1.1.0"])
    (plugin,) = listed["plugins"]
    parsed = parse_conf(json.dumps(plugin | {"name": listed["name"], "cniVersion": "1.1.0"}).encode(), "ADD")
    assert parsed.ranges[0][0].subnet == CIDRS[0]
    assert parsed.non_masquerade == (ip_network("10.244.0.0/16"),)
    assert load_published(here.data_dir, here.network).pod_cidrs == CIDRS
    assert (tmp_path / "bin" / "nodewright").stat().st_mode & 0o777 == 0o755
    assert [item.name for item in (tmp_path / "net.d").iterdir()] == ["10-nodewright.conflist"]
    withdraw(here)
    withdraw(here)
    assert not list((tmp_path / "net.d").iterdir()) + list((tmp_path / "bin").iterdir())


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pod_cidrs": [1]}', '{"pod_cidrs": 1, "non_masquerade": 2}'])
def test_damaged_memory_is_no_memory(tmp_path: Path, content: str) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / ".published").write_text(content)
    assert load_published(str(tmp_path), "net").pod_cidrs == ()


def test_the_shim_imports_only_what_is_built_in() -> None:
    tree = ast.parse(shim_text("/run/x.sock"))
    names = {
        alias.name for item in ast.walk(tree) if isinstance(item, ast.Import | ast.ImportFrom) for alias in item.names
    }
    assert names == {"posix", "sys", "_socket"}


def test_the_shim_without_a_server_is_the_plugin(tmp_path: Path) -> None:
    path = install_plugin(settings(tmp_path))
    done = subprocess.run([path], env={"CNI_COMMAND": "VERSION"}, input=b"", capture_output=True, check=True)
    assert json.loads(done.stdout)["supportedVersions"][-1] == "1.1.0"
    done = subprocess.run([path], env={"CNI_COMMAND": "ADD"}, input=b"", capture_output=True, check=False)
    assert (done.returncode, json.loads(done.stdout)["code"]) == (1, 4)


def test_the_plugin_alone_finds_the_packages_where_the_agent_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Debian package keeps them in a folder of its own, and no agent answers while it is restarted."""
    packages = tmp_path / "packages"
    (packages / "pyroute2").mkdir(parents=True)
    for name in ("__init__", "config"):
        (packages / "pyroute2" / f"{name}.py").write_text("raise ImportError('that of the folder')")
    monkeypatch.setenv("PYTHONPATH", f"{packages}{os.pathsep}relative")
    path = install_plugin(settings(tmp_path))
    conf = json.dumps({**conflist(settings(tmp_path), CIDRS)["plugins"][0], "cniVersion": "1.1.0", "name": "net"})
    call = {"CNI_COMMAND": "DEL", "CNI_CONTAINERID": "x", "CNI_IFNAME": "eth0", "CNI_PATH": "/nowhere"}
    done = subprocess.run([path], env=call, input=conf.encode(), capture_output=True, check=False)
    assert "that of the folder" in done.stdout.decode(), done
    assert b"relative" not in path.read_bytes(), "it would be looked for in the runtime's folder"


@pytest.mark.parametrize("python", ["/opt/a b/python", "/" + "x" * 300, '/opt/"/python'])
def test_a_path_that_a_script_cannot_name(python: str) -> None:
    with pytest.raises(Invalid, match="under a"):
        shim_text("/run/x.sock", python=python)


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "bin").write_text("")
    with pytest.raises(Permanent, match="bin"):
        install_plugin(settings(tmp_path))


def test_this_interpreter_runs_it() -> None:
    assert shim_text("/run/x.sock").startswith(f"#!{sys.executable} -IS\n".encode())
