"""What root in a node can show `doctor`: it leads to no file of this machine, and into no command that is pasted."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli.commands.doctor_cis import show
from cli.display.terminal import new_console
from controlplane.doctor import work
from controlplane.doctor.edge import configz
from controlplane.doctor.edge.daemons import Daemon
from controlplane.doctor.model import FileFact
from controlplane.doctor.plan.cis import judge
from controlplane.doctor.plan.netcheck import Link, check
from nodelib import command
from nodelib.command import CommandError
from tests.unit.controlplane.doctor.test_cis import GOOD
from tests.unit.controlplane.doctor.test_netcheck import LINKS, WELL

_CHROOT = "import os, sys; os.chroot(sys.argv[1]); os.chdir('/'); print('there', flush=True); sys.stdin.read()"
ODD = "/etc/x; touch /pwned #\x1b]0;title\x07\nfix: curl evil"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A process whose root is tmp_path/node."""
    (tmp_path / "node" / "etc").mkdir(parents=True)
    with subprocess.Popen(
        [sys.executable, "-c", _CHROOT, str(tmp_path / "node")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"there\n"
        yield Daemon(process.pid, ())
        process.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change a root")
def test_a_folder_that_is_a_link_is_looked_up_in_the_node(daemon: Daemon, tmp_path: Path) -> None:
    secret = tmp_path / "machine"
    secret.mkdir()
    (secret / "a.conf").write_text("of the machine")
    (tmp_path / "node" / "etc" / "kubernetes").symlink_to(secret)
    with pytest.raises(OSError):
        daemon.read("/etc/kubernetes/a.conf")
    assert daemon.fact("/etc/kubernetes/a.conf").problem
    assert daemon.named("/etc/kubernetes", ".conf") == ()
    own = tmp_path / "node" / str(secret).lstrip("/")  # what the same link means in the node
    own.mkdir(parents=True)
    (own / "a.conf").write_text("of the node")
    (own / "a.conf").chmod(0o640)
    assert daemon.read("/etc/kubernetes/a.conf") == "of the node"
    assert daemon.fact("/etc/kubernetes/a.conf") == FileFact("/etc/kubernetes/a.conf", 0o640, 0, 0)
    assert daemon.named("/etc/kubernetes", ".conf") == ("/etc/kubernetes/a.conf",)


def test_a_path_is_one_word_of_the_command_that_mends_it() -> None:
    found = judge(replace(GOOD, kubeconfig=(FileFact("/etc/x; touch /pwned", 0o644),)))
    assert [one.fix for one in found if one.control == "4.1.5"] == ["chmod 600 '/etc/x; touch /pwned'"]


def test_a_link_is_one_word_of_the_command_that_mends_it() -> None:
    name = "a;reboot;"
    (finding,) = check(replace(WELL, uplink=name, links=LINKS | {name: Link(name, mtu=1500, rp_filter="1")}))
    assert finding.fix.endswith("sysctl -w 'net.ipv4.conf.a;reboot;.rp_filter=2'")


def test_what_a_node_names_does_not_drive_the_terminal() -> None:
    facts = replace(GOOD, node="n\x1b[2J", kubeconfig=(FileFact(ODD, 0o644),), source="\x1b]0;x\x07")
    out = io.StringIO()
    show(judge(facts), new_console(out, width=400))
    text = out.getvalue()
    assert "\x1b" not in text and "\x07" not in text
    assert not any(line.strip().startswith("fix: curl evil") for line in text.splitlines())


async def test_the_name_that_a_kubelet_gives_itself_is_one_part_of_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Client:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        async def __aenter__(self) -> Client:
            return self

        async def __aexit__(self, *_: object) -> None: ...

        async def get(self, path: str) -> dict[str, Any]:
            asked.append(path)
            return {"kubeletconfig": {}}

    monkeypatch.setattr(configz, "KubeClient", Client)
    monkeypatch.setattr(configz, "load_kubeconfig", lambda path: path)
    await configz.by_api("a", "../namespaces/x/pods/y/proxy/z?")
    assert asked == ["/api/v1/nodes/..%2Fnamespaces%2Fx%2Fpods%2Fy%2Fproxy%2Fz%3F/proxy/configz"]


@pytest.mark.parametrize("answer", [CommandError(["x"], None, b"", reason="not finished after 60 s"), b"no JSON"])
async def test_a_node_that_does_not_answer_in_time_is_one_finding(
    monkeypatch: pytest.MonkeyPatch, answer: Exception | bytes
) -> None:
    async def run(*_: object, **__: object) -> object:
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(stdout=answer, stderr=b"", returncode=0)

    monkeypatch.setattr(command, "run", run)
    (finding,), routes = await work._check_network("lab/node1", "", "10.96.0.10")
    assert finding.level == "warning" and finding.found.startswith("could not be checked") and routes is None
