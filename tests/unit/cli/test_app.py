"""The command line as a whole: help, usage errors, and what is refused before anything is done."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from cli.app import app
from cli.options.shared import DEFAULT

PROJECT = Path(__file__).resolve().parents[3]
RUNNER = CliRunner()
COMMANDS = {
    "Cluster": (
        *("up", "down", "clusters", "stop", "start", "kubectl", "kubeconfig", "shell", "load", "unload", "node"),
        "addons",
    ),
    "Diagnosis": (
        *("status", "why", "doctor", "images", "trace", "service", "view", "version", "completion", "drops", "export"),
        "policy",
    ),
    "Nodes": ("join", "leave", "install", "uninstall", "payload", "package", "release"),
    "Daemons": ("agent", "kubelet", "kube-proxy", "loadbalancer", "proxy"),
    "Tests": ("test", "conformance", "bench"),
}
BELOW = ("node add", "node remove", "addons list", "addons add", "addons remove", "policy explain", "policy list")
EVERY = [*(command for listed in COMMANDS.values() for command in listed), *BELOW]


def test_help_names_every_command_and_where_to_start() -> None:
    text = RUNNER.invoke(app, ["--help"]).output
    assert "./nodewright up" in text
    panels = re.split(r"╭─ (\w+) ─+╮", text)[1:]
    shown = {
        title: tuple(re.findall(r"^│ ([a-z-]+) ", panel, re.MULTILINE))
        for title, panel in zip(panels[::2], panels[1::2], strict=True)
    }
    assert {title: found for title, found in shown.items() if title != "Options"} == COMMANDS


@pytest.mark.parametrize("command", ["", *(one for one in EVERY if one not in COMMANDS["Daemons"])])
def test_help_shows_value_names_and_no_python_types(command: str) -> None:
    done = RUNNER.invoke(app, [*command.split(), "--help"], env={"COLUMNS": "200"})
    assert done.exit_code == 0
    assert re.findall(r"<\w[^>]*>", done.output) == []
    assert not re.search(r"\b(str|int|float|bool|Path|list\[|range)\b", done.output.partition("─ Options")[2])


@pytest.mark.parametrize(
    "command",
    [
        "up",
        "kubectl",
        "load",
        "why",
        "doctor",
        "images",
        "trace",
        "service",
        "drops",
        "join",
        "test",
        "conformance",
        "bench",
    ],
)
def test_help_teaches_by_example(command: str) -> None:
    text = RUNNER.invoke(app, [command, "--help"]).output
    assert "Examples" in text
    assert f"./nodewright {command}" in text


@pytest.mark.parametrize("command", ["bench", "trace", "service", "load", "payload"])
def test_a_missing_argument_is_a_usage_error(command: str) -> None:
    done = RUNNER.invoke(app, [command])
    assert done.exit_code == 2 and "Missing argument" in done.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["up", "--nodes", "0"],
        ["up", "--proxy-mode", "ipvs"],
        ["up", "--agent", "other"],
        ["conformance", "--tier", "all"],
        ["up", "--unknown"],
    ],
)
def test_bad_options_are_usage_errors(arguments: list[str]) -> None:
    done = RUNNER.invoke(app, arguments)
    assert done.exit_code == 2 and arguments[1] in done.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--scoreboard --focus DNS --skip x", "--focus, --skip go only without --scoreboard"),
        ("--parts node-serial", "--parts goes only with --scoreboard"),
        ("--again", "--again goes only with --scoreboard"),
    ],
)
def test_options_of_one_run_and_of_the_scoreboard_do_not_mix(words: str, said: str) -> None:
    done = _cli("conformance", *words.split())
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--name lab", "--name and --kubeconfig cannot be combined"),
        ("--suite node", "--suite node and --kubeconfig cannot be combined"),
        ("--suite cyclonus", "--suite cyclonus and --kubeconfig cannot be combined"),
        ("--scoreboard", "--kubeconfig goes only without --scoreboard"),
    ],
)
def test_another_cluster_is_for_the_e2e_suite_only(words: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "conf").touch()
    done = _cli("conformance", "--kubeconfig", str(tmp_path / "conf"), *words.split())
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("--suite node", "node-suite"),
        ("--suite node --name mine", "mine"),
        ("--scoreboard", "scoreboard"),
        ("--scoreboard --name mine", "mine"),
    ],
)
def test_a_node_of_the_suites_never_takes_the_name_of_the_cluster_that_runs(
    words: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    monkeypatch.setattr("cli.clusters.meant", lambda _: "lab")
    monkeypatch.setattr("cli.commands.conformance.run_node", lambda order, **_: made.append(order.name))
    monkeypatch.setattr("cli.commands.conformance_scoreboard.run", lambda order, **_: made.append(order.name))
    done = RUNNER.invoke(app, ["conformance", *words.split()])
    assert (done.exit_code, made) == (0, [name]), done.output


def test_another_cluster_is_asked_though_one_of_ours_runs(tmp_path: Path) -> None:
    # Commands without --name mean the one that runs, or the one of the environment.
    words = ["conformance", "--kubeconfig", str(tmp_path / "conf")]
    said = RUNNER.invoke(app, words, env={"NODEWRIGHT_NAME": "lab"}).stderr
    assert "no such file" in said and str(tmp_path / "conf") in said


def test_the_file_of_a_cluster_is_printed_and_flags_win_over_it(tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").write_text(
        "apiVersion: nodewright.io/v1alpha1\nkind: Cluster\nname: lab\ndemo: false\nnetworking: {ipFamily: dual}\n"
        "nodes: [{name: a, labels: {x: y}}, {name: b}, {name: c}]\n"
    )
    words = ["up", "--config", str(tmp_path / "lab.yaml"), "--print-config", "--nodes", "2", "--ip-family", "ipv4"]
    done = RUNNER.invoke(app, words, env={"NODEWRIGHT_STATE": str(tmp_path / "state")})
    assert done.exit_code == 0, done.stderr
    found = yaml.safe_load(done.stdout)
    assert (found["name"], found["demo"], found["networking"]["ipFamily"]) == ("lab", False, "ipv4")
    assert found["nodes"] == [{"name": "a", "labels": {"x": "y"}}, {"name": "b"}]
    (tmp_path / "printed.yaml").write_text(done.stdout)
    again = [*words[:2], str(tmp_path / "printed.yaml"), "--print-config"]
    assert RUNNER.invoke(app, again, env={"NODEWRIGHT_STATE": str(tmp_path / "state")}).stdout == done.stdout
    assert not (tmp_path / "state").exists(), "nothing is made"


def test_all_that_is_wrong_in_a_file_is_shown_with_its_lines(tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").write_text(
        "apiVersion: nodewright.io/v1alpha1\nkind: Cluster\nnodez: 3\nports: [{hostPort: 80, nodePort: many}]\n"
    )
    done = _cli("up", "--config", str(tmp_path / "lab.yaml"), NODEWRIGHT_STATE=str(tmp_path / "state"))
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "lab.yaml, line 3" in done.stderr and "do: Write `nodes`." in done.stderr
    assert "lab.yaml, line 4" in done.stderr and "ports[0].nodePort" in done.stderr
    assert not (tmp_path / "state").exists()
    done = _cli("up", "--config", str(tmp_path / "none.yaml"), NODEWRIGHT_STATE=str(tmp_path / "state"))
    assert done.returncode == 1 and "--print-config" in done.stderr


def test_no_such_cluster_says_how_to_make_one(tmp_path: Path) -> None:
    done = _cli("kubeconfig", "--name", "nowhere", NODEWRIGHT_STATE=str(tmp_path))
    assert done.returncode == 1
    assert "no such cluster" in done.stderr
    assert "./nodewright up --name nowhere" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments", [["--nme", "x", "--", "get", "pods"], ["--nme=x"], ["--", "--plain", "get", "pods"]], ids=" ".join
)
def test_a_misspelt_option_is_not_handed_to_kubectl(arguments: list[str], tmp_path: Path) -> None:
    done = RUNNER.invoke(app, ["kubectl", *arguments], env={"NODEWRIGHT_STATE": str(tmp_path)})
    assert done.exit_code == 2 and "unknown option: neither nodewright nor kubectl takes it" in done.stderr
    assert ("Did you mean --name?" in done.stderr) == ("nme" in arguments[0])


def test_options_of_kubectl_before_its_verb_are_let_through(tmp_path: Path) -> None:
    for arguments in (["--namespace", "x", "get", "pods"], ["--", "-v=6", "get", "pods"], ["get", "pods", "--nme"]):
        done = RUNNER.invoke(app, ["kubectl", *arguments], env={"NODEWRIGHT_STATE": str(tmp_path)})
        assert "no such cluster" in done.stderr


@pytest.mark.parametrize(
    ("given", "name", "kubectls"),
    [
        ("get pods", DEFAULT, "get pods"),
        ("get --help", DEFAULT, "get --help"),
        ("get pods -h", DEFAULT, "get pods -h"),
        ("expose deploy web --name=x", DEFAULT, "expose deploy web --name=x"),
        ("--name lab expose deploy web --name x", "lab", "expose deploy web --name x"),
        ("--name=lab get pods", "lab", "get pods"),
        ("-n shop --name lab get pods", "lab", "-n shop get pods"),
        ("-nshop get pods", DEFAULT, "-nshop get pods"),
        ("--namespace shop get --name x", DEFAULT, "--namespace shop get --name x"),
        ("--namespace=shop --name lab get pods", "lab", "--namespace=shop get pods"),
        ("-v 6 --insecure-skip-tls-verify --name lab get pods", "lab", "-v 6 --insecure-skip-tls-verify get pods"),
        ("-- get pods", DEFAULT, "get pods"),
        ("-- --help", DEFAULT, "--help"),
        ("-- --name x", DEFAULT, "--name x"),
        ("--name lab -- exec web -- ls --name", "lab", "exec web -- ls --name"),
        ("exec web -- ls -l", DEFAULT, "exec web -- ls -l"),
        ("apply -f -", DEFAULT, "apply -f -"),
        ("", DEFAULT, ""),
    ],
    ids=lambda text: text or "nothing",
)
def test_options_after_kubectls_first_word_are_kubectls(
    given: str, name: str, kubectls: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[tuple[str, list[str]]] = []
    monkeypatch.setattr("cli.commands.kubectl.run", lambda name, arguments: heard.append((name, arguments)))
    done = RUNNER.invoke(
        app, ["kubectl", *given.split()], env={"NODEWRIGHT_NAME": None, "NODEWRIGHT_STATE": str(tmp_path)}
    )
    assert (done.exit_code, heard) == (0, [(name, kubectls.split())]), done.output


@pytest.mark.parametrize("given", ["--help", "-h", "--name lab --help"])
def test_help_before_kubectls_first_word_is_ours(given: str) -> None:
    assert "Usage: nodewright kubectl" in RUNNER.invoke(app, ["kubectl", *given.split()]).output


@pytest.mark.skipif(os.geteuid() != 0, reason="an image is imported as root")
def test_what_is_no_image_is_refused_before_any_node_is_asked(tmp_path: Path) -> None:
    record = {"name": "lab", "subnet": "10.89.3.0/24", "options": {}, "pod_cidr": "", "service_cidr": "", "domain": ""}
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "cluster.json").write_text(json.dumps(record))
    (tmp_path / "junk.tar").write_text("junk")
    with tarfile.open(tmp_path / "exported.tgz", "w:gz") as tar:
        tar.add(tmp_path / "junk.tar", "bin/sh")
    (tmp_path / "squeezed").write_bytes(b"\x28\xb5\x2f\xfd..")
    (tmp_path / "empty").touch()
    here = {"NODEWRIGHT_STATE": str(tmp_path)}
    for file, why in {
        "missing.tar": "no such file",
        "junk.tar": "not a readable tar",
        "exported.tgz": "docker export",
        "squeezed": "zstd -d",
        "empty": "not a readable tar",
        "lab": "Is a directory",
    }.items():
        done = RUNNER.invoke(app, ["load", str(tmp_path / file), "--name", "lab"], env=here)
        assert done.exit_code == 1 and why in done.stderr and "Traceback" not in done.stderr, done.stderr
    done = RUNNER.invoke(app, ["load", str(tmp_path / "junk.tar"), "--name", "lab", "--node", "n9"], env=here)
    assert "There are: node1, node2" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="gives up root to become another user")
@pytest.mark.parametrize("command", ["up", "down"])
def test_other_users_than_root_are_refused(command: str, tmp_path: Path) -> None:
    # Imported first: the interpreter itself may lie where only root can read.
    code = f"import os; from cli.commands import {command} as c; from cli.errors import reported\n"
    code += "os.setgid(65534); os.setuid(65534)\nwith reported(): c.run('x'" + (", {})" if command == "up" else ")")
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**_without_ours(), "PYTHONPATH": str(PROJECT)},
    )
    assert done.returncode == 1
    assert "needs root" in done.stderr
    assert f"Run `sudo ./nodewright {command}`." in done.stderr


def _without_ours() -> dict[str, str]:
    """The environment without what changes our commands and thus what they advise."""
    return {name: value for name, value in os.environ.items() if not name.startswith("NODEWRIGHT_")}


_HEAVY = {"aiohttp", "cryptography", "grpc", "google", "pydantic", "pyroute2", "rich", "yaml"}


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        (["version"], set()),
        (["up", "--nodes", "many"], {"pydantic", "rich"}),  # only to refuse it
        (["kubectl", "get", "pods"], set()),
        (["status"], {"yaml"}),
        (["clusters"], {"yaml", "aiohttp", "rich"}),
        (["service", "demo", "-n", "shop"], {"yaml"}),
        (["trace", "node1", "demo"], {"yaml"}),
        (["why", "web-0"], {"yaml", "aiohttp", "rich"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_command_imports_only_what_it_needs(arguments: list[str], needed: set[str], tmp_path: Path) -> None:
    code = f"""
import sys
from cli.app import main
sys.argv = ["nodewright", *{arguments!r}]
try:
    main()
finally:
    sys.__stdout__.write("\\nimported " + " ".join({{name.partition(".")[0] for name in sys.modules}}))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PROJECT), "NODEWRIGHT_STATE": str(tmp_path)},
    )
    imported = set(done.stdout.rpartition("imported ")[2].split())
    assert "typer" in imported, done.stderr
    assert imported & _HEAVY <= needed


def _cli(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cli", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PROJECT), **environment},
    )


@pytest.mark.parametrize(
    ("source", "archive"),
    [
        ("web", False),
        ("team/web:v1", False),
        ("x.test/web:v1", False),
        ("web.tar", True),
        ("./web", True),
        ("/tmp/web", True),
        ("a.tgz", True),
        ("-x", True),
    ],
)
def test_load_tells_images_from_files(
    source: str, archive: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cli.commands.load import is_archive

    monkeypatch.chdir(tmp_path)
    assert is_archive(source) is archive
    (tmp_path / "web").touch()
    assert is_archive("web"), "a file that is there is meant"


@pytest.mark.parametrize("command", ["up", "doctor", "payload out", "bench pods", "conformance"])
def test_a_folder_of_binaries_that_is_missing_is_refused_before_anything_is_made(command: str, tmp_path: Path) -> None:
    words = [*command.split(), "--binaries", f"{tmp_path}/nosuch"]
    done = RUNNER.invoke(app, words, env={"NODEWRIGHT_STATE": str(tmp_path / "state")})
    assert done.exit_code == 2 and "nosuch" in re.sub(r"[\s│]", "", done.output)  # a long path is broken inside its box
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb is not installed")
def test_a_package_for_a_folder_that_cannot_be_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder, words in ((tmp_path / "no" / "such", "no such directory"), (tmp_path / "file", "is not a directory")):
        done = RUNNER.invoke(app, ["package", str(folder)], env={"NODEWRIGHT_CACHE": str(tmp_path / "cache")})
        assert done.exit_code == 1 and words in done.stderr and str(tmp_path) in done.stderr
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.skipif(os.geteuid() != 0, reason="install needs root")
def test_install_into_another_root_names_the_files_there(tmp_path: Path) -> None:
    root = str(tmp_path / "a b")
    done = RUNNER.invoke(app, ["install", "--root", root])
    assert done.exit_code == 0 and f"written {root}/usr/local/bin/kubelet\n" in done.output
    assert "kubeadm now finds" not in done.output and f"nodewright uninstall --root '{root}'" in done.output
    done = RUNNER.invoke(app, ["uninstall", "--root", root])
    assert f"removed {root}/usr/local/bin/kubelet\n" in done.output
    assert f"Nothing is installed below {root}" in RUNNER.invoke(app, ["uninstall", "--root", root]).output


@pytest.mark.parametrize(
    ("words", "ours"),
    [
        (["create", "cluster"], "`./nodewright up`"),
        (["get", "nodes"], "`./nodewright kubectl get`"),
        (["ls"], "lists"),
        (["dashboard"], "`./nodewright view`"),
        (["describe", "pod", "web-0"], "`./nodewright kubectl describe`"),
        (["addons", "enable", "metrics"], "`./nodewright addons add`"),
        (["node", "list"], "`./nodewright status`"),
        (["export", "kubeconfig"], "`./nodewright kubeconfig`"),
        (["purge"], "`./nodewright uninstall --purge`"),
        (["export-logs", "/tmp/report"], "`./nodewright export logs DIR`"),
    ],
)
def test_words_of_other_tools_lead_to_ours(words: list[str], ours: str) -> None:
    done = RUNNER.invoke(app, words, env={"COLUMNS": "200"})
    assert done.exit_code == 2 and ours in done.output and "Did you mean" not in done.output


@pytest.mark.parametrize("words", [["down", "lab"], ["up", "lab"], ["status", "lab"]])
def test_a_clusters_name_without_its_option_is_recognized(words: list[str]) -> None:
    done = RUNNER.invoke(app, words, env={"COLUMNS": "200"})
    assert done.exit_code == 2 and "(lab). A cluster is chosen by --name NAME" in done.output


def test_a_name_before_the_command_belongs_after_it() -> None:
    done = RUNNER.invoke(app, ["--name", "lab", "status"], env={"COLUMNS": "200"})
    assert done.exit_code == 2 and "`./nodewright status --name NAME`" in done.output


@pytest.mark.parametrize("words", [[], ["help"], ["addons"], ["node"]])
def test_who_asks_for_no_command_gets_help(words: list[str]) -> None:
    done = RUNNER.invoke(app, words)
    assert done.exit_code == 0 and "Usage: " in done.output, done.output


@pytest.mark.parametrize("words", [["up"], ["node", "add"]])
def test_help_is_a_word_too(words: list[str]) -> None:
    done = RUNNER.invoke(app, ["help", *words])
    assert done.exit_code == 0 and f" {' '.join(words)} [OPTIONS]" in done.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--nodes", "0"], "must be a whole number from 1 to 20, not 0"),
        (["--nodes", "three"], "must be a whole number from 1 to 20, not three"),
        (["--cpus", "-1"], "must be a whole number of at least 0, not -1"),
        (["--kubernetes", "1.30"], "'--kubernetes': '1.30' is not one of '1.37', '1.36'"),
    ],
)
def test_a_wrong_value_is_explained_in_plain_words(words: list[str], said: str) -> None:
    done = RUNNER.invoke(app, ["up", *words], env={"COLUMNS": "200"})
    assert done.exit_code == 2 and said in done.output and "Input should" not in done.output
