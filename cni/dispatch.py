"""One CNI call, from environment and standard input to its answer, for the server and the standalone plugin alike."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass

from cni.model import Attachment, AttachmentKey
from cni.operations import Operations
from cni.spec.arguments import Args, parse_args
from cni.spec.configuration import NetConf, decode, parse_conf
from cni.spec.errors import INTERNAL, IO_FAILURE, TRY_AGAIN_LATER, UNKNOWN_CONTAINER, CNIError
from cni.spec.versions import CURRENT, SUPPORTED, version_reply
from nodelib.shortage import describe, is_shortage
from nodelib.text_numbers import is_number

log = logging.getLogger(__name__)

NETNS_ERRNO = "NODEWRIGHT_NETNS_ERRNO"  # set by the shim when it could not open CNI_NETNS


@dataclass(frozen=True, slots=True)
class Call:
    """A call whose input is valid. `conf` None: the command is VERSION."""

    args: Args
    conf: NetConf | None
    version: str
    netns_error: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """Standard output and exit status. `failed`: the error, for the log."""

    body: bytes = b""
    failed: CNIError | None = None

    @property
    def status(self) -> int:
        return 1 if self.failed else 0


@dataclass(frozen=True, slots=True)
class Done:
    """What a command did: its answer, whether host ports changed, so that the packet filter must follow, and what ADD
    attached, whose network policies must be in force before its answer is given.
    """

    answer: Answer
    ports_changed: bool = False
    added: Attachment | None = None


def read(env: Mapping[str, str], stdin: bytes) -> Call:
    """Read and check a call. Raises CNIError before anything has been touched."""
    args = parse_args(env)
    if args.command == "VERSION":
        asked = decode(stdin).get("cniVersion", CURRENT) if stdin.strip() else CURRENT
        return Call(args, None, str(asked))
    conf = parse_conf(stdin, args.command)
    number = env.get(NETNS_ERRNO, "")
    code = int(number) if is_number(number) and len(number) <= 4 else 0
    return Call(args, conf, conf.cni_version, code)


def perform(call: Call, operations: Operations, netns: int | None) -> Done:
    """Carry out ADD, DEL, CHECK, GC or VERSION. `netns`: descriptor of CNI_NETNS, None without one. Raises CNIError."""
    args, conf = call.args, call.conf
    if conf is None:
        return Done(version_answer(call))
    if args.command == "ADD":
        result, attachment = operations.add(conf, args, _required(call, netns))
        return Done(Answer(_encode(result.as_json(conf.cni_version))), bool(attachment.port_mappings), attachment)
    if args.command == "DEL":
        released = operations.delete(conf, args.key)
        return Done(Answer(), bool(released and released.port_mappings))
    if args.command == "CHECK":
        operations.check(conf, args, _required(call, netns))
    if args.command == "GC":
        gone = operations.collect(conf, conf.valid_attachments or frozenset[AttachmentKey]())
        return Done(Answer(), any(item.port_mappings for item in gone))
    return Done(Answer())


def version_answer(call: Call) -> Answer:
    return Answer(_encode(version_reply(call.version)))


def refusal(error: Exception, stdin: bytes) -> Answer:
    """The answer to a call that failed: the specification's error object."""
    if is_shortage(error) and not isinstance(error, CNIError):
        error = CNIError(TRY_AGAIN_LATER, f"{type(error).__name__}: {error}", details=describe(error))
    if not isinstance(error, CNIError):
        log.error("unexpected error in a CNI call", exc_info=error)
        error = CNIError(INTERNAL, f"{type(error).__name__}: {error}", details="This is a bug: see the node's log.")
    return Answer(_encode(error.as_json(_version_of(stdin))), error)


def _required(call: Call, netns: int | None) -> int:
    if netns is not None:
        return netns
    reason = os.strerror(call.netns_error) if call.netns_error else "it did not come with the request"
    raise CNIError(
        UNKNOWN_CONTAINER if call.netns_error else IO_FAILURE,
        f"cannot open the network namespace {call.args.netns}: {reason}",
        obj=str(call.args.key),
        details="The sandbox is gone or was never made: the runtime must make a new one.",
    )


def _version_of(stdin: bytes) -> str:
    try:
        version = decode(stdin).get("cniVersion")
    except CNIError:
        return CURRENT
    return version if version in SUPPORTED else CURRENT


def _encode(body: object) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode() + b"\n"
