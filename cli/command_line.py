"""The command line that the user gave, to be printed as part of advice: quoted, complete, ready to be pasted."""

from __future__ import annotations

import os
import shlex
import sys

from cli.project import is_checkout

# What changes which cluster or which files are meant; sudo does not pass the environment on.
_VARIABLES = ("NODEWRIGHT_NAME", "NODEWRIGHT_STATE", "NODEWRIGHT_CACHE", "NODEWRIGHT_PYTHON", "NODEWRIGHT_RELEASE")


def program() -> str:
    """How the user calls us; the launcher tells, and what pip installed is the program itself."""
    return os.environ.get("NODEWRIGHT_LAUNCHER") or ("./nodewright" if is_checkout() else sys.argv[0])


def with_sudo(what: str = "") -> str:
    """The user's command line again, as root. `what` stands for it when this process was not started by one."""
    words = sys.argv[1:]
    if what and words[:1] != what.split()[:1]:
        words = what.split()
    given = [f"{name}={os.environ[name]}" for name in _VARIABLES if os.environ.get(name)]
    return shlex.join(["sudo", *(["env", *given] if given else []), program(), *words])
