"""The last output of `up`: what kubectl knows, and what to try next."""

from __future__ import annotations

import pytest

from cli.commands.up import report
from controlplane.cluster.model import Cluster
from controlplane.cluster.work.user_kubeconfig import Outcome
from controlplane.up.work import Raised

LAB = Cluster("lab", "10.89.0.0/24")
FILE = "/home/me/.kube/config"


@pytest.mark.parametrize(
    ("outcomes", "there", "missing"),
    [
        pytest.param(
            (Outcome(FILE, LAB.context),),
            ["kubectl uses it now: context nodewright-lab in /home/me/.kube/config", "  kubectl get nodes\n"],
            "export KUBECONFIG",
            id="the current context",
        ),
        pytest.param(
            (Outcome(FILE, "work\x1b[2J"),),
            ["`kubectl config use-context nodewright-lab`", "\\x1b[2J", "  kubectl --context nodewright-lab get nodes"],
            "\x1b",
            id="another one is current, and its name comes from outside",
        ),
        pytest.param(
            (Outcome(FILE, problem=f"{FILE}: this file is not a kubeconfig: mend it"),),
            [
                "warning: kubectl does not know this cluster yet",
                f"{FILE}: this file is not a kubeconfig",
                "nodes Ready",
            ],
            "use-context",
            id="a file that was left as it is",
        ),
        pytest.param((), ["export KUBECONFIG=$(./nodewright kubeconfig --name lab)"], "context", id="none wanted"),
    ],
)
def test_what_became_of_the_kubeconfig(
    outcomes: tuple[Outcome, ...], there: list[str], missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    text = report(Raised(LAB, [], outcomes), 8.0)
    assert [words for words in there if words not in text] == []
    assert missing not in text
    assert "./nodewright down --name lab" in text


def test_a_machine_without_kubectl_is_told_to_use_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    text = report(Raised(LAB, [], (Outcome(FILE, LAB.context),)), 8.0)
    assert "  alias kubectl='./nodewright kubectl --name lab'\n" in text and "export KUBECONFIG" not in text
