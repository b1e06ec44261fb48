"""The launcher `nodewright`: what it says when it cannot create the environment."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.commands import kubectl
from controlplane.cluster.model import Cluster, Options
from tests.unit.cli.nobody import folder_for_all

PROJECT = Path(__file__).resolve().parents[3]


def launched(*arguments: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(PROJECT / "nodewright"), *arguments],
        capture_output=True,
        text=True,
        timeout=180,
        cwd=cwd,
        env={**{name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}, **environment},
    )


def test_a_cache_that_cannot_be_written_is_named_with_its_remedy() -> None:
    found = launched("--help", NODEWRIGHT_CACHE="/proc/nodewright", NODEWRIGHT_PYTHON="")
    assert found.returncode == 1
    assert "cannot write to the cache directory /proc/nodewright" in found.stderr
    assert "do: Set NODEWRIGHT_CACHE" in found.stderr
    assert "waiting for another process" not in found.stderr


@pytest.mark.parametrize("arguments", [["--version"], ["version"]], ids=" ".join)
def test_a_given_interpreter_is_used(arguments: list[str]) -> None:
    found = launched(*arguments, NODEWRIGHT_PYTHON=sys.executable, NODEWRIGHT_CACHE="/proc/nodewright")
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith("nodewright ")


def test_modules_in_the_current_directory_are_not_run(tmp_path: Path) -> None:
    """Root may stand in /tmp, or in the home of a user who has put something there."""
    for name in ("cli/__init__.py", "cli/__main__.py", "venv.py", "typer.py"):
        (tmp_path / "theirs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "theirs" / name).write_text("raise SystemExit('a stranger was here')")
    found = launched("--version", cwd=tmp_path / "theirs", NODEWRIGHT_PYTHON=sys.executable)
    assert (found.returncode, found.stderr) == (0, "")
    # An interpreter with which the environment is not finished, so that nothing is downloaded.
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").write_text(
        f'#!/bin/sh\n[ "$2" != venv ] || exec {sys.executable} -m venv --help\nexec {sys.executable} "$@"\n'
    )
    (tmp_path / "bin" / "python3").chmod(0o755)
    found = launched(
        "--version",
        cwd=tmp_path / "theirs",
        NODEWRIGHT_PYTHON="",
        NODEWRIGHT_CACHE=str(tmp_path / "cache"),
        PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}",
    )
    assert "creating the Python environment" in found.stderr
    assert "stranger" not in found.stdout + found.stderr


def test_a_plugin_of_kubectl_finds_the_modules_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, str]] = []
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    monkeypatch.setattr(
        kubectl, "reachable", lambda _: Cluster("lab", "10.89.3.0/24", Options(), tools={"kubectl": "/k"})
    )
    monkeypatch.setattr(os, "execve", lambda path, argv, environment: given.append(environment))
    kubectl.run("lab", ["get", "pods"])
    assert "KUBECONFIG" in given[0] and "PYTHONSAFEPATH" not in given[0]


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Instead of pytest's own, which is for its user only."""
    with folder_for_all() as folder:
        yield folder


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What the launcher needs of a checkout, where everyone can read it."""
    folder = tmp_path / "check out"
    for name in ("nodewright", "requirements.lock", "controlplane/packages.txt", "tests/packages.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PROJECT / name, folder / name)
    return folder


def by_nobody(checkout: Path, cache: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The launcher, started by a user without any rights. A hang fails by the time limit."""
    return subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", str(checkout / "nodewright"), *arguments],
        capture_output=True,
        text=True,
        timeout=180,
        cwd="/",
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nonexistent", "NODEWRIGHT_CACHE": str(cache)}
        | environment,
    )


def environment_of(checkout: Path, cache: Path) -> Path:
    """Where the launcher expects its environment, asked of a run that wants to create it."""
    empty = cache.with_name("asked")
    empty.mkdir()
    (empty / "venv").mkdir()
    os.chown(empty / "venv", 65534, 65534)
    with (empty / "venv" / ".lock").open("w") as lock:
        os.chown(lock.fileno(), 65534, 65534)
        found = by_nobody(checkout, empty, "--help", BASH_ENV=str(_traced(checkout)))
    key = next(line.rpartition("/")[2] for line in found.stderr.splitlines() if line.startswith("VENV "))
    return cache / "venv" / key


def _traced(checkout: Path) -> Path:
    """A start file of bash that prints the first value of `venv` and ends the run."""
    file = checkout / "trace.sh"
    file.write_text("set -T\ntrap 'if [[ -n ${venv:-} ]]; then echo \"VENV $venv\" >&2; kill $$; exit 1; fi' DEBUG\n")
    return file


_ROOT_ONLY = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("setpriv") or not Path("/usr/bin/python3").exists(),
    reason="becomes another user, who has a Python",
)


@_ROOT_ONLY
def test_a_cache_of_somebody_else_is_named_at_once_with_the_command_line(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "cache" / "venv").mkdir(parents=True)
    (tmp_path / "cache" / "venv" / ".lock").touch()
    found = by_nobody(checkout, tmp_path / "cache", "up", "--help", "a b")
    assert found.returncode == 1 and found.stdout == ""
    first, _, last = found.stderr.splitlines()
    cache = tmp_path / "cache"
    assert first == f"error: cannot write to the cache directory {cache}: {cache}/venv belongs to root"
    line = (
        f"NODEWRIGHT_CACHE=/tmp/nodewright-65534 {str(checkout).replace(' ', chr(92) + ' ')}/nodewright up --help a\\ b"
    )
    assert last == f"  do: Set NODEWRIGHT_CACHE to a directory of yours: `{line}`."


@_ROOT_ONLY
def test_a_lock_of_somebody_else_is_named(checkout: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "venv"
    folder.mkdir(parents=True)
    (folder / ".lock").touch()
    os.chown(folder, 65534, 65534)
    found = by_nobody(checkout, tmp_path / "cache", "--help")
    assert found.returncode == 1 and f"{folder}/.lock belongs to root" in found.stderr, found.stderr


@_ROOT_ONLY
def test_help_needs_no_writable_folder_if_the_environment_is_there(checkout: Path, tmp_path: Path) -> None:
    venv = environment_of(checkout, tmp_path / "cache")
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").write_text('#!/bin/sh\nprintf "%s|" "$@" "$NODEWRIGHT_LAUNCHER"\n')
    (venv / "bin" / "python").chmod(0o755)
    (venv / ".complete").touch()
    found = by_nobody(checkout, tmp_path / "cache", "--help", "a b")
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout == f"-m|cli|--help|a b|{checkout}/nodewright|"
    (venv / "bin" / "python").chmod(0o700)
    found = by_nobody(checkout, tmp_path / "cache", "--help")
    assert found.returncode == 1 and f"you may not execute {venv}/bin/python" in found.stderr


def test_whoever_creates_the_environment_for_too_long_is_not_waited_for(checkout: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "venv"
    folder.mkdir(parents=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = subprocess.run(
            [str(checkout / "nodewright"), "--help"],
            capture_output=True,
            text=True,
            timeout=180,
            env={
                **os.environ,
                "NODEWRIGHT_CACHE": str(tmp_path / "cache"),
                "NODEWRIGHT_PYTHON": "",
                "NODEWRIGHT_WAIT": "1",
            },
        )
    assert found.returncode == 1
    assert "waiting for another process that is creating the Python environment" in found.stderr
    assert f"fuser -v {folder}/.lock" in found.stderr


def test_completion_never_creates_an_environment(tmp_path: Path) -> None:
    found = launched(NODEWRIGHT_CACHE=str(tmp_path), NODEWRIGHT_PYTHON="", _NODEWRIGHT_COMPLETE="complete_bash")
    assert (found.returncode, found.stdout, found.stderr, list(tmp_path.iterdir())) == (1, "", "", [])


@_ROOT_ONLY
def test_a_complete_environment_is_found_without_starting_an_interpreter(checkout: Path, tmp_path: Path) -> None:
    venv = environment_of(checkout, tmp_path / "cache")
    (venv / "bin").mkdir(parents=True)
    interpreter = tmp_path / "interpreter"
    interpreter.write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    interpreter.chmod(0o755)
    (venv / "bin" / "python").symlink_to(interpreter)
    (venv / ".complete").touch()
    (venv / ".complete").chmod(0o666)
    assert by_nobody(checkout, tmp_path / "cache", "first").stdout == "-m|cli|first|"
    shims = tmp_path / "shims"
    shims.mkdir()
    (shims / "python3").write_text(f"#!/bin/sh\ntouch {tmp_path}/started\nexit 1\n")
    (shims / "python3").chmod(0o755)
    tmp_path.chmod(0o777)
    path = f"{shims}:/usr/local/bin:/usr/bin:/bin"
    assert by_nobody(checkout, tmp_path / "cache", "second", PATH=path).stdout == "-m|cli|second|"
    assert not (tmp_path / "started").exists()
    os.utime(interpreter, (1, 1))  # it was installed again
    by_nobody(checkout, tmp_path / "cache", "third", PATH=path)
    assert (tmp_path / "started").exists(), "the launcher looked again"
    assert by_nobody(checkout, tmp_path / "cache", "fourth").stdout == "-m|cli|fourth|"
    assert by_nobody(checkout, tmp_path / "cache", "fifth", PATH=path).stdout == "-m|cli|fifth|", "and knows it now"


@pytest.mark.skipif(os.geteuid() != 0, reason="makes files of another user")
@pytest.mark.parametrize("how", ["of another user", "open to all"])
def test_a_cache_of_another_user_is_not_trusted(checkout: Path, tmp_path: Path, how: str) -> None:
    """/tmp/nodewright-0, which somebody made before."""
    cache = tmp_path / "cache"
    (cache / "venv").mkdir(parents=True)
    if how == "of another user":
        os.chown(cache, 1234, 1234)
    else:
        (cache / "venv").chmod(0o1777)
    environment = {**os.environ, "NODEWRIGHT_CACHE": str(cache), "NODEWRIGHT_PYTHON": "", "SUDO_UID": ""}
    found = subprocess.run(
        [str(checkout / "nodewright"), "--help"], capture_output=True, text=True, timeout=180, env=environment
    )
    assert found.returncode == 1
    assert f"cannot trust the cache directory {cache}" in found.stderr
    assert os.listdir(cache) == ["venv"] and os.listdir(cache / "venv") == []


def packages_asked_for(checkout: Path, cache: Path, *words: str, **environment: str) -> list[str]:
    """What the launcher would install on a machine that has nothing."""
    tools = checkout.parent / "tools"
    tools.mkdir(exist_ok=True)
    (tools / "dpkg-query").write_text("#!/bin/sh\nexit 1\n")
    (tools / "dpkg-query").chmod(0o755)
    path = f"{tools}:/usr/local/bin:/usr/bin:/bin"
    found = by_nobody(checkout, cache, *words, PATH=path, **environment)
    first = found.stderr.splitlines()[0]
    assert first.startswith("error: these Debian packages are missing"), found.stderr
    return first.partition("install them: ")[2].split()


@_ROOT_ONLY
def test_with_a_release_no_compiler_is_installed(checkout: Path, tmp_path: Path) -> None:
    asked = packages_asked_for(checkout, tmp_path / "cache", "up")
    building = {"gcc", "make", "libc6-dev", "libseccomp-dev", "pkg-config", "bzip2"}
    assert {*building, "iptables"} <= set(asked)
    without = [one for one in asked if one not in building]
    for words, environment in (
        (("up", "--release", "dist"), {}),
        (("up", "--release=dist"), {}),
        (("up",), {"NODEWRIGHT_RELEASE": "dist"}),
    ):
        assert packages_asked_for(checkout, tmp_path / "cache", *words, **environment) == without


@pytest.mark.skipif(os.geteuid() != 0, reason="only root installs packages")
@pytest.mark.skipif(not Path(sys.prefix, ".complete").exists(), reason="not in an environment of the launcher's")
@pytest.mark.parametrize("there", [True, False], ids=["can be installed", "not in this distribution"])
def test_packages_that_some_tests_need_are_tried_and_never_end_the_run(tmp_path: Path, there: bool) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    asked = tmp_path / "asked"
    for name, script in {
        "dpkg-query": "[[ ${@: -1} == chromium* ]] || printf installed",
        "apt-get": f'printf "%s\\n" "$*" >>{asked}; {"exit 0" if there else "echo E: no candidate; exit 100"}',
    }.items():
        (programs / name).write_text(f"#!/bin/bash\n{script}\n")
        (programs / name).chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    cache = tmp_path / "cache"
    (cache / "venv").mkdir(parents=True)
    (cache / "venv" / "made").symlink_to(sys.prefix)
    done = launched("test", "-k", "nothing", "nosuch", PATH=path, NODEWRIGHT_CACHE=str(cache), NODEWRIGHT_PYTHON="")
    assert "neither a tier nor a path: nosuch" in done.stderr, "the run went on to its tests"
    assert asked.read_text().splitlines()[0].endswith("install --no-install-recommends chromium chromium-driver")
    assert ("tests which need them are skipped: chromium chromium-driver" in done.stderr) is not there
