"""`nodewright completion`: a real bash completes commands, options, values and clusters with what it prints."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.app import app

PROJECT = Path(__file__).resolve().parents[4]


def completed(line: str, state: Path) -> list[str]:
    """What bash offers at the end of `line`, with the cursor after its last word or a blank."""
    code = """
eval "$SCRIPT"
complete -p nodewright >/dev/null || exit 9
COMP_LINE=$LINE COMP_POINT=${#LINE}
read -ra COMP_WORDS <<<"$LINE"
[[ $LINE == *' ' ]] && COMP_WORDS+=('')
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_nodewright_completion "${COMP_WORDS[0]}" "${COMP_WORDS[COMP_CWORD]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""
    environment = {
        **os.environ,
        "SCRIPT": CliRunner().invoke(app, ["completion", "bash"]).output,
        "LINE": line,
        "NODEWRIGHT_PYTHON": sys.executable,
        "NODEWRIGHT_STATE": str(state),
    }
    done = subprocess.run(
        ["bash", "--norc", "-c", code], capture_output=True, text=True, timeout=120, cwd=PROJECT, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("./nodewright kubec", ["kubectl", "kubeconfig"]),
        ("./nodewright up --no-de", ["--no-demo"]),
        ("./nodewright version --output j", ["json"]),
        ("./nodewright completion ", ["bash", "zsh", "fish"]),
        ("./nodewright export ", ["logs"]),
        ("./nodewright down --name la", ["lab", "lake"]),
        (f"{PROJECT}/nodewright ups", []),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bash_completes(line: str, wanted: list[str], tmp_path: Path) -> None:
    for name in ("lab", "lake", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cluster.json").write_text(json.dumps({"name": name}))
    assert sorted(completed(line, tmp_path)) == sorted(wanted)


def test_bash_finds_the_completion_for_every_way_to_call_us() -> None:
    script = CliRunner().invoke(app, ["completion", "bash"]).output
    code = 'eval "$SCRIPT"; complete -p nodewright && complete -p ./nodewright && compgen -A function _nodewright'
    done = subprocess.run(["bash", "--norc", "-c", code], capture_output=True, text=True, env={"SCRIPT": script})
    assert (done.returncode, done.stdout.split()[-1]) == (0, "_nodewright_completion")


@pytest.mark.parametrize(("shell", "check"), [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")])
def test_the_script_is_valid(shell: str, check: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["completion", shell])
    assert done.exit_code == 0 and "_NODEWRIGHT_COMPLETE" in done.output
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "script").write_text(done.output)
    assert subprocess.run([shell, check, str(tmp_path / "script")]).returncode == 0


def test_another_shell_is_a_usage_error() -> None:
    assert CliRunner().invoke(app, ["completion", "tcsh"]).exit_code == 2
