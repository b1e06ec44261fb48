"""The commands of the pages that users follow work as printed, page by page, in the order in which they stand there.

A page's commands share one shell, so a variable lives on; a command that an earlier page had is not run again. What is
not run at all is in tests/pages.py, with the reason.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.cluster.model import Cluster
from tests.cluster.command_line import STATE
from tests.pages import GUIDES, PROJECT, SAYS, STATUS, Command, commands

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root")]
_DONE = "\n=== a command is done ===\n"
_MADE = ("deployment/web", "deployment/broken", "service/web")  # by the quick start, which also removes them


@pytest.fixture(scope="module")
def seen() -> set[str]:
    """What an earlier page ran."""
    return set()


@pytest.fixture
def shell(shared_cluster: Cluster, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of somebody who stands in the project's folder and has this cluster in the kubeconfig.

    The folder is one of the test's own: commands may write files there.
    """
    kubectl, kubeconfig = shared_cluster.tools["kubectl"], tmp_path / "kubeconfig"
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "kubectl").symlink_to(kubectl)
    (tmp_path / "nodewright").symlink_to(PROJECT / "nodewright")
    shutil.copy(shared_cluster.admin_kubeconfig, kubeconfig)
    yield {
        **os.environ,
        "PATH": f"{tools}:{os.environ['PATH']}",
        "KUBECONFIG": str(kubeconfig),
        "NODEWRIGHT_NAME": shared_cluster.name,
        "NODEWRIGHT_PYTHON": sys.executable,
    }
    with contextlib.suppress(subprocess.TimeoutExpired):
        gone = ["delete", "--ignore-not-found", "--wait=false", *_MADE]
        subprocess.run([kubectl, "--kubeconfig", str(kubeconfig), *gone], capture_output=True, timeout=60)


def on(cluster: Cluster, text: str) -> str:
    """The command for this cluster: the pages speak of one with the default name, and of one named lab."""
    return text.replace("--name lab", f"--name {cluster.name}").replace(
        "/var/lib/nodewright/nodewright/", f"{STATE}/{cluster.name}/"
    )


def script(cluster: Cluster, page: list[Command]) -> str:
    """Runs the commands one after the other, and ends at the first with a status that the page does not announce."""
    lines = []
    for one in page:
        allowed = "|".join(map(str, STATUS.get(one.text, (0,))))
        lines.append(on(cluster, one.text))
        ends = f"echo status $status of {shlex.quote(one.text)}; exit 99"
        lines.append(f"status=$?; case $status in {allowed}) ;; *) {ends};; esac")
        lines.append(f"printf {shlex.quote(_DONE)}")
    return "\n".join(lines)


@pytest.mark.parametrize("page", [page for page in GUIDES if any(not one.not_run for one in commands(page))])
def test_the_commands_of_a_page_work_as_printed(
    page: str, shared_cluster: Cluster, shell: dict[str, str], seen: set[str], tmp_path: Path
) -> None:
    fresh = [one for one in commands(page) if not one.not_run and one.text not in seen]
    done = subprocess.run(
        ["bash", "-c", script(shared_cluster, fresh)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        cwd=tmp_path,
        env=shell,
    )
    assert done.returncode == 0 and "Traceback" not in done.stdout, done.stdout
    answers = done.stdout.split(_DONE)
    for one, answer in zip(fresh, answers, strict=False):
        assert SAYS.get(one.text, "") in answer, f"{one}\n{answer}"
    seen.update(one.text for one in fresh)
