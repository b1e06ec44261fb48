"""`status` in 80 columns: no word is broken, times are ages, and what others answered is a sentence."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from cli.commands import doctor
from cli.commands import status as command
from cli.display.columns import aligned, wrapped
from controlplane.cluster.plan.podless import Podless
from controlplane.cluster.plan.readiness import Pod, proxy_state
from controlplane.cluster.work.status import Daemon, NodeStatus, Status
from controlplane.doctor.plan.preflight import Finding
from nodelib.kube.times import parse_rfc3339

AT = "2026-11-22T23:44:37.274545Z"
NOW = parse_rfc3339(AT) + 12
NODE = NodeStatus(
    "node1",
    "10.89.3.11",
    state="Ready",
    waits_for="",
    pods=2,
    proxy=f"synced {AT}",
    proxy_state="synced",
    proxy_problem="",
    proxy_synced=AT,
    version="v1.37.1",
    runtime="containerd://2.4.2",
)
GONE = "is down: nothing listens on its health port"
WELL = Status(
    name="lab",
    subnet="10.89.3.0/24",
    api_url="https://10.89.3.11:6443",
    api="",
    supervisors={"control-plane": 1, "node1": 2, "node2": 3},
    missing=(),
    daemons=(
        Daemon("control-plane", "kube-controller-manager", True, 4194304, 1, ""),
        Daemon("node1", "agent", True, 23755, 1, ""),
    ),
    nodes=(NODE, replace(NODE, name="node2", address="10.89.3.12")),
    settings={"proxy mode": "iptables", "IP family": "ipv4", "uplink": "yes", "links": "one bridge"},
    version="v1.37.1",
    skew=(),
    certificates="node1/kubernetes/pki/kubelet-client.crt ends on 2027-11-22",
    logs="/var/lib/nodewright/lab/UNIT/log/DAEMON.log",
    pods=(Pod("web-0", "shop", "node1", "", False, "Pending", "web CrashLoopBackOff: back-off 5m0s", 3, False),),
)
ILL = {
    "node not registered": replace(
        WELL, nodes=(NODE, replace(NODE, name="node2", state="not registered", waits_for="not registered"))
    ),
    "node not Ready": replace(
        WELL,
        nodes=(
            replace(
                NODE,
                state="not Ready",
                waits_for="not Ready: container runtime network not ready: NetworkReady=false " * 3,
            ),
        ),
    ),
    "proxy down": replace(
        WELL, nodes=(replace(NODE, proxy=GONE, proxy_state="down", proxy_problem=GONE, proxy_synced=""),)
    ),
    "pressure": replace(WELL, nodes=(replace(NODE, feels="MemoryPressure, DiskPressure"),)),
    "daemon down": replace(WELL, daemons=(Daemon("node1", "agent", False, 7, 12, "exit status 1"),)),
    "supervisor down": replace(WELL, supervisors={"node1": 0}),
    "API server down": replace(WELL, api="no answer: Connection refused (10.89.3.11:6443)"),
    "namespace missing": replace(WELL, missing=("/var/lib/nodewright/lab/ns/node1.net",)),
    "IPv6": replace(WELL, nodes=(replace(NODE, address="fd00:a59:300::ffff:ffff:ffff:ffff"),)),
}


def printed(status: Status, monkeypatch: pytest.MonkeyPatch, *, terminal: bool = True) -> list[str]:
    monkeypatch.setattr("cli.commands.status.time.time", lambda: NOW)
    monkeypatch.setenv("COLUMNS", "80")
    out = io.StringIO()
    monkeypatch.setattr(out, "isatty", lambda: terminal)
    command.show(status, out)
    return out.getvalue().splitlines()


@pytest.mark.parametrize("status", [WELL, *ILL.values()], ids=["well", *ILL])
def test_eighty_columns_are_enough_and_no_word_is_broken(status: Status, monkeypatch: pytest.MonkeyPatch) -> None:
    narrow, whole = printed(status, monkeypatch), printed(status, monkeypatch, terminal=False)
    assert max(map(len, narrow)) <= 80
    assert " ".join(narrow).split() == " ".join(whole).split()


def test_times_are_ages(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = printed(WELL, monkeypatch)
    assert "node1  10.89.3.11  Ready  2     synced 12 s ago" in shown
    assert not any("T23:44" in line for line in shown)
    assert "  all: kubelet v1.37.1, containerd 2.4.2" in shown


@pytest.mark.parametrize(
    ("name", "row", "sentence"),
    [
        ("node not registered", "not registered", "`./nodewright doctor --name lab` says what to do."),
        ("node not Ready", "not Ready", "node1: not Ready: container runtime network not ready"),
        ("proxy down", "down", "node1: the proxy is down: nothing listens on its health port"),
        ("pressure", "Ready, MemoryPressure, DiskPressure", ""),
        ("daemon down", "down", "node1: agent is down, it ended with exit status 1; its log: /var/lib/nodewright/lab/"),
        ("supervisor down", "supervisor               down", "`./nodewright up --name lab` starts what is down."),
        ("API server down", "Ready", "does not answer (no answer: Connection refused"),
    ],
)
def test_what_is_wrong_is_a_sentence_below(name: str, row: str, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n".join(printed(ILL[name], monkeypatch, terminal=False))
    assert row in text and sentence in text


def test_workloads_without_pods_are_said_even_where_every_pod_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    many = tuple(Podless("deployment", "shop", f"web{number}", "has 0 of 3 pods: quota") for number in range(22))
    shown = printed(replace(WELL, pods=(), podless=many), monkeypatch, terminal=False)
    assert shown[-23:-20] == [
        "0 pods, 0 of them ready or completed.",
        "  deployment shop/web0 has 0 of 3 pods: quota",
        "  deployment shop/web1 has 0 of 3 pods: quota",
    ]
    assert shown[-2:] == [
        "  and 2 more workloads without pods",
        "  `./nodewright why --name lab` says why, and what to do.",
    ]


def test_daemons_that_up_never_came_to_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have no log to name."""
    names = ("kube-controller-manager", "kube-scheduler")
    never = [Daemon("control-plane", name, False, 0, 0, "") for name in names]
    shown = printed(replace(WELL, daemons=(*WELL.daemons, *never)), monkeypatch, terminal=False)
    assert "control-plane  kube-scheduler           down" in "\n".join(shown)
    assert "  control-plane: kube-controller-manager, kube-scheduler have not been started" in shown
    assert "  `./nodewright up --name lab` starts what is down." in shown
    assert not any("log:" in line for line in shown)


@pytest.mark.parametrize(
    ("bodies", "error", "wanted"),
    [
        (('{"lastUpdated": "2026-11-22T23:44:37Z"}',), "", "synced 2026-11-22T23:44:37Z"),
        (("ok",), "", "answers"),
        (("[1]",), "", "answers"),
        ((), "answered 'HTTP/1.1 503 Service Unavailable\\r\\nContent-Type: app'", "is not healthy: its last change"),
        ((), "answered 'HTTP/1.1 404 Not Found'", "is not healthy: another answer"),
        ((), "[Errno 111] Connection refused", "is down: nothing listens"),
        ((), "timed out", "does not answer: timed out"),
    ],
    ids=["synced", "another proxy", "a list", "503", "404", "refused", "late"],
)
def test_the_health_checks_answer_is_a_sentence(bodies: tuple[str, ...], error: str, wanted: str) -> None:
    said = proxy_state(bodies, error).text
    assert said.startswith(wanted) and "HTTP/1" not in said and "Errno" not in said


def test_a_pod_that_is_not_ready_is_explained_by_why(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = printed(WELL, monkeypatch)
    assert "  shop/web-0 on node1: web CrashLoopBackOff: back-off 5m0s" in shown
    assert shown[-1] == "  `./nodewright why --name lab` says why, and what to do."


def test_a_finding_of_doctor_is_a_paragraph_with_whole_paths() -> None:
    out = io.StringIO()
    # Of no terminal's environment: a dumb one has 80 columns.
    console = Console(
        file=out, width=60, force_terminal=True, markup=False, highlight=False, color_system=None, _environ={}
    )
    log = "/var/lib/nodewright/lab-of-a-long-name/node2/log/agent-and-more.log"
    fix = f"`./nodewright up` registers it again; if it does not, {log} says why"
    doctor.show(
        [Finding("root", "ok", "yes", "not shown"), Finding("lab/node2: Node", "error", "is gone " * 9, fix)], console
    )
    shown = out.getvalue().splitlines()
    assert shown[0] == "ok       root: yes" and shown[1].startswith("error    lab/node2: Node: is gone")
    assert log in out.getvalue() and "not shown" not in out.getvalue()
    assert all(len(line) <= 60 for line in shown if log not in line)
    assert all(line.startswith(" " * 9) for line in shown[2:])


def test_columns_and_paragraphs() -> None:
    assert aligned([("A", "B"), ("longer", "")]) == ["A       B", "longer"]
    assert wrapped("  one two three", 9) == ["  one two", "    three"]
    assert wrapped("/a/path-that/is-longer-than the rest", 10) == ["/a/path-that/is-longer-than", "  the rest"]
