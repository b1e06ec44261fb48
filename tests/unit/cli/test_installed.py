"""What is different where pip installed nodewright: no launcher, no source tree."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli import command_line, errors
from cli.project import PROJECT, is_checkout


@pytest.fixture
def installed(tmp_path: Path) -> list[str]:
    """The command line from a folder without a launcher, as pip lays it out."""
    site = tmp_path / "site"
    site.mkdir()
    for name in ("agent", "cli", "cni", "controlplane", "csi", "loadbalancer", "nodelib", "policy", "proxy", "view"):
        (site / name).symlink_to(PROJECT / name)
    program = tmp_path / "bin" / "nodewright"
    program.parent.mkdir()
    # Links would lead back to the source tree.
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(site)!r})\n"
        "import cli.project\nfrom pathlib import Path\n"
        f"cli.project.PROJECT = Path({str(site)!r})\ncli.project.LAUNCHER = cli.project.PROJECT / 'nodewright'\n"
        "from cli.app import main\nsys.exit(main())\n"
    )
    program.chmod(0o755)
    return [str(program)]


def test_a_source_tree_is_known_by_its_launcher() -> None:
    assert is_checkout()
    errors.need_checkout("test")


@pytest.mark.parametrize("words", [["test", "unit"], ["install"], ["package"], ["payload", "x"], ["release", "x"]])
def test_commands_on_the_source_tree_are_refused_with_what_to_do(installed: list[str], words: list[str]) -> None:
    done = subprocess.run([*installed, *words], capture_output=True, text=True, cwd="/tmp")
    assert done.returncode == 1
    assert done.stderr.startswith("error: needs nodewright's source tree, and this is an installed package")
    assert f"do: Clone the repository, and run the script `nodewright` of that folder: nodewright {words[0]}." in (
        done.stderr
    )


def test_advice_names_the_program_as_it_is_called(installed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NODEWRIGHT_LAUNCHER", raising=False)  # of the launcher that has started the tests
    done = subprocess.run([*installed, "--help"], capture_output=True, text=True)
    assert "./nodewright" not in done.stdout
    assert installed[0] in done.stdout.replace("│\n│", "").replace(" ", "").replace("\n", "")


def test_tables_of_help_are_as_wide_where_the_program_has_a_long_name(installed: list[str]) -> None:
    environment = {"COLUMNS": "80", "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    for words in (["--help"], ["up", "--help"]):
        done = subprocess.run([*installed, *words], capture_output=True, text=True, env=environment)
        rows = [line for line in done.stdout.splitlines() if line.startswith("│")]
        assert len(rows) > 20 and {len(line) for line in rows} == {80}


def test_sudo_gets_the_whole_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NODEWRIGHT_LAUNCHER", raising=False)
    assert command_line.program() == "./nodewright"
    monkeypatch.setattr(command_line, "is_checkout", lambda: False)
    monkeypatch.setattr(sys, "argv", ["/opt/nodewright/bin/nodewright", "up"])
    assert command_line.program() == "/opt/nodewright/bin/nodewright"
    assert command_line.with_sudo("up").endswith("/opt/nodewright/bin/nodewright up")
