"""The whole plugin in one process: started by the shim when no server answers.

It makes the bridge and its rules if they are missing, so podman, nerdctl or another kubelet can use it without any
other part of nodewright running.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping

from cni import dispatch
from cni.dispatch import Answer, Call
from cni.spec.errors import INVALID_CONFIG, CNIError


def main(env: Mapping[str, str] = os.environ) -> int:
    """Read a call from standard input, write its answer to standard output, return the exit status."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="nodewright: %(message)s")
    answer = run(env, sys.stdin.buffer.read() if sys.stdin else b"")
    sys.stdout.buffer.write(answer.body)
    sys.stdout.buffer.flush()
    return answer.status


def run(env: Mapping[str, str], stdin: bytes) -> Answer:
    """Carry out one call. Never raises: an error becomes the answer."""
    try:
        return _run(dispatch.read(env, stdin))
    except Exception as error:
        return dispatch.refusal(error, stdin)


def _run(call: Call) -> Answer:
    if call.conf is None:
        return dispatch.version_answer(call)
    if call.args.command == "STATUS":
        if not call.conf.ranges:
            raise CNIError(INVALID_CONFIG, "ipam.ranges is empty: there is no address to give", details="Add a subnet.")
        return Answer()
    # Imported here because loading pyroute2 takes longer than VERSION and STATUS may take altogether.
    from cni.standalone import perform

    return perform(call, call.conf)
