"""A problem, with what to do about it. Pure."""

from __future__ import annotations

import shlex
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """`reason` is a word for programs, `text` a sentence, `action` what to do about it, "" when nothing is known.

    Commands in `action` are `kubectl …` and `nodewright …`: cli/why/wording.py turns them into what works here.
    """

    reason: str
    text: str
    action: str = ""


def kubectl(namespace: str, *words: str) -> str:
    """A command about one namespace, as it stands in an action."""
    space = ("-n", namespace) if namespace not in ("", "default") else ()
    return f"`{shlex.join(('kubectl', *space, *words))}`"


def ours(*words: str) -> str:
    """A command of nodewright, as it stands in an action."""
    return f"`{shlex.join(('nodewright', *words))}`"
