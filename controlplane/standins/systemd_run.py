"""systemd-run on the node of upstream's e2e_node suite: it adds a program to the node's supervisor.

`python -S -m controlplane.standins.systemd_run DIR [-p NAME=VALUE] --unit=NAME [--…] COMMAND…`, as
test/e2e_node/services calls it. Like a transient unit with --remain-after-exit, the program stays known when it stops:
systemctl.py kills it and starts it again. Unlike such a unit, a kubelet that exits by itself is restarted
(Restart=always).
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from controlplane.standins import systemctl
from controlplane.supervisor.edge import units
from controlplane.supervisor.model import Program

_STOP_TIMEOUT = 30.0  # seconds
_VERSION = "systemd 252 (stand-in of nodewright)"  # tests read the number: from 240 on, logs can be appended to


@dataclass(frozen=True, slots=True)
class Call:
    """The parsed command line; `log` is "" when no place for the output was given."""

    unit: str
    command: tuple[str, ...]
    log: str


def parse(words: list[str]) -> Call:
    """Raises ValueError for a call without a unit or a command."""
    unit = log = ""
    rest = list(words)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "-p":
            name, _, value = rest.pop(0).partition("=") if rest else ("", "", "")
            log = value.partition(":")[2] if name == "StandardError" else log
        elif word.startswith("--unit="):
            unit = word.partition("=")[2].removesuffix(".service")
    if not unit or not rest:
        raise ValueError("--unit=NAME and a command are needed")
    # systemd would expand $NAME and %X, so the suite doubles both characters.
    return Call(unit, tuple(word.replace("$$", "$").replace("%%", "%") for word in rest), log)


def main(argv: list[str]) -> int:
    """Exit status 0 once the command is running."""
    folder, words = argv[0], argv[1:]
    if "--version" in words:
        print(_VERSION)
        return 0
    try:
        call = parse(words)
    except ValueError as error:
        print(f"systemd-run: {error}", file=sys.stderr)
        return 1
    command = (os.path.abspath(call.command[0]), *call.command[1:])
    log = call.log or os.path.join(folder, f"{call.unit}.log")
    units.add_program(folder, Program(call.unit, command, log, dict(os.environ), _STOP_TIMEOUT))
    return systemctl.main([folder, "start", call.unit])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
