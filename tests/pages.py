"""The commands that the pages tell people to type, and which of them no test types.

A block marked `sh` holds commands, a block marked `console` holds commands behind `$` or `#` and what they print.
`tests/unit/test_pages.py` reads every command with the real command line; `tests/cluster/test_pages.py` runs them, page
by page, on a cluster. What it leaves out is in NOT_RUN, with the reason.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
# The pages that users follow; the others are for people who change the project.
GUIDES = (
    "README.md",
    "docs/install.md",
    "docs/quick-start.md",
    "docs/clusters.md",
    "docs/config.md",
    "docs/joining.md",
    "docs/kind.md",
    "docs/troubleshooting.md",
    "docs/faq.md",
    "docs/upgrade.md",
    "docs/hardening.md",
)
_ELSEWHERE = "a test of its own raises the clusters that it changes: tests/cluster/"
# Commands that begin like this are not run on the cluster that all tests share, and why.
NOT_RUN: tuple[tuple[str, str], ...] = (
    (r"\./nodewright (up(?! .*--print-)|down|stop|start)\b", _ELSEWHERE + "test_up_down.py"),
    (r"\./nodewright node (add|remove)\b", _ELSEWHERE + "test_cluster_file.py"),
    (r"\./nodewright addons (add|remove)\b", _ELSEWHERE + "test_cluster_file.py, test_ingress.py, test_top.py"),
    (r"\./nodewright (load|unload)\b", "needs an image of docker's: tests/cluster/test_load_images.py makes one"),
    (r"docker build\b", "needs docker: tests/cluster/test_load_images.py plays one"),
    (r"\./nodewright (status|why)\b.* --watch$", "goes on until Ctrl-C: tests/cluster/test_watch.py"),
    (r"\./nodewright shell node1$", "waits for somebody who types"),
    (r"\./nodewright export logs\b", "takes half a minute: tests/cluster/test_export_logs.py"),
    (r"\./nodewright (join https:|leave$)", "needs another cluster: tests/cluster/test_join.py"),
    (r"\./nodewright join --print-rights \| kubectl\b", "gives rights in another cluster: tests/cluster/test_join.py"),
    (r"\./nodewright (install|uninstall)$", "changes this machine: tests/unit/controlplane/host/test_install.py"),
    (r"\./nodewright uninstall --purge$", "removes the cache of the tests: tests/unit/cli/commands/test_purge.py"),
    (r"\./nodewright (package|payload)\b", "builds for minutes: tests/unit/controlplane/host/test_package.py"),
    (
        r"(python3 -m venv |/opt/nodewright/bin/|ln -s /opt/nodewright/bin/|export PATH=)",
        "installs a release: tests/cluster/test_release.py",
    ),
    (r"\./nodewright test\b", "it is what runs this test"),
    (r"\./nodewright conformance\b", "the tier `smoke` runs it: tests/conformance/test_smoke.py"),
    (r"\./nodewright view\b", "it serves until it is ended: tests/cluster/test_view.py"),
    (r"kubeadm ", "needs the control plane of another cluster: tests/cluster/test_kubeadm.py"),
    (
        r"\./nodewright doctor --cis --kubeconfig\b",
        "needs upstream's kubelet on this machine: tests/cluster/test_join.py",
    ),
    (r"(sudo )?(kind|docker|ctr) |kubectl taint nodes kind-", "kind.md needs docker: tests/cluster/test_kind.py"),
    (r"echo .* >>/etc/hosts$", "changes this machine: tests/cluster/test_kind.py"),
    (r"api=\$\(docker inspect\b", "needs docker"),
    (r"iptables -I DOCKER-USER\b", "needs docker's chain"),
    (r"openssl x509 .*/etc/kubernetes/", "needs a node of kubeadm's"),
    (r"kubectl (drain|delete node) \w+", "removes a node that other tests need"),
    (r"kubectl config use-context\b", "needs a second cluster: tests/cluster/test_up_down.py has the contexts"),
    (r"(apt-get|dpkg) ", "changes the packages of this machine"),
    (r"git (clone|pull)\b", "needs the network, and an address that the page cannot know"),
    (r"cd nodewright$", "goes with `git clone`"),
    (r"sudo -i$", "opens a shell for somebody who types"),
)
# Exit statuses that commands have on the pages, where it is not 0; two where other tests may have left something.
STATUS: dict[str, tuple[int, ...]] = {
    "./nodewright why deploy/broken": (1,),
    "./nodewright why": (0, 1),
    "./nodewright doctor": (0, 1),
    "./nodewright clusters": (0, 1),
}
# What the pages say that a command answers.
SAYS = {
    "./nodewright kubectl get nodes": "node2",
    "curl -s --retry 5 --retry-connrefused http://$node:30081/hostname": "web-",
    "./nodewright service web": "30081",
    "./nodewright trace outside web": "ARRIVES",
    "./nodewright trace deploy/web demo": "ARRIVES",
    "./nodewright why deploy/broken": "/no/such/program",
    "./nodewright addons list": "metrics",
    "./nodewright version": "Kubernetes",
}
_BLOCK = re.compile(r"^(?P<indent> *)```(?P<kind>sh|console)\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"\s+# .*$")
_OURS = re.compile(r"\./nodewright((?:[^|&;<>()'\"]|'[^']*'|\"[^\"]*\")*)")


@dataclass(frozen=True)
class Command:
    """One command of a page, as it is typed, without the comment behind it."""

    page: str
    block: int
    text: str

    def __str__(self) -> str:
        return f"{self.page}: {self.text}"

    @property
    def not_run(self) -> str:
        """Why no test runs it; "" if one does."""
        return next((why for pattern, why in NOT_RUN if re.match(pattern, self.text)), "")

    @property
    def ours(self) -> Iterator[list[str]]:
        """The words after each `./nodewright` in it."""
        for words in _OURS.findall(self.text):
            yield shlex.split(words)


def commands(page: str, text: str | None = None) -> list[Command]:
    """The commands of a page's blocks, from the top down."""
    text = (PROJECT / page).read_text() if text is None else text
    blocks = list(_BLOCK.finditer(text))
    return [Command(page, at, line) for at, block in enumerate(blocks) for line in _lines(block["kind"], block["text"])]


def _lines(kind: str, text: str) -> Iterator[str]:
    """Its commands. One that ends with a backslash, a pipe or && goes on in the next line."""
    begun = ""
    for line in text.splitlines():
        line = line.strip()
        if begun:
            line = f"{begun} {line}"
        elif kind == "console":
            if line[:2] not in ("$ ", "# "):
                continue
            line = line[2:]
        elif line.startswith("#"):
            continue
        line = _COMMENT.sub("", line)
        begun = line.removesuffix("\\").rstrip() if line.endswith(("\\", "|", "&&")) else ""
        if line and not begun:
            yield line
