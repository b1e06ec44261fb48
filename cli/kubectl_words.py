"""Which words after `nodewright kubectl` are ours: --name and --help before kubectl's first word, or before `--`."""

from __future__ import annotations

from collections.abc import Sequence

_OURS = ("-h", "--help")
# Options that kubectl takes before its first word (`kubectl options` lists them), by whether a value follows.
_FLAGS = (
    "disable-compression help insecure-skip-tls-verify match-server-version storage-driver-secure warnings-as-errors"
)
_VALUED = (
    "as as-group as-uid as-user-extra cache-dir certificate-authority client-certificate client-key cluster context "
    "kubeconfig kuberc log-flush-frequency namespace password profile profile-output request-timeout server "
    "storage-driver-buffer-duration storage-driver-db storage-driver-host storage-driver-password "
    "storage-driver-table storage-driver-user tls-server-name token user username v vmodule"
)
GLOBAL = frozenset(f"{_FLAGS} {_VALUED}".split())
_WITH_VALUE = frozenset(["-n", "-s", "-v", *(f"--{name}" for name in _VALUED.split())])


def split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Ours, and kubectl's. A lonely `--` before kubectl's first word ends ours and goes to nobody."""
    ours: list[str] = []
    theirs: list[str] = []
    rest = list(words)
    while rest and (rest[0].startswith("-") and rest[0] != "-"):
        word = rest.pop(0)
        if word == "--":
            break
        if word == "--name":
            ours += [word, *rest[:1]]
            rest = rest[1:]
        elif word in _OURS or word.startswith("--name="):
            ours.append(word)
        else:
            theirs.append(word)
            if word in _WITH_VALUE:
                theirs += rest[:1]
                rest = rest[1:]
    return ours, [*theirs, *rest]
