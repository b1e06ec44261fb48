"""gRPC messages and services built from a short description, so that the tree has no generated code.

A description has one line for each message and for each call:

    Device: ID string, health string, topology TopologyInfo      field numbers count from 1
    DynamicResource: claim_name string @2                        or are given
    Request: paths [string], options {string}                    repeated; map<string, string>
    AnyValue: string_value string?, int_value int64? @3          sent even if it is empty or 0
    rpc Registration.Register RegisterRequest Empty
    rpc DevicePlugin.ListAndWatch Empty stream ListAndWatchResponse

Enums are int32 and members of a oneof are plain fields, which is the same on the wire (protobuf's encoding rules).
Messages are passed as dicts with the field names of the .proto file.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from nodelib.errors import Invalid, NodewrightError, NotFound
from nodelib.json_values import Json
from nodelib.plugin_apis.errors import Refused
from nodelib.plugin_apis.plain import Room, to_plain

Unary = Callable[[Json], Awaitable[Json]]
Stream = Callable[[Json], AsyncIterator[Json]]

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "string": _Field.TYPE_STRING,
    "bool": _Field.TYPE_BOOL,
    "bytes": _Field.TYPE_BYTES,
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
    "uint64": _Field.TYPE_UINT64,
    "fixed32": _Field.TYPE_FIXED32,
    "fixed64": _Field.TYPE_FIXED64,
}
_STATUS: dict[type[NodewrightError], grpc.StatusCode] = {
    Invalid: grpc.StatusCode.INVALID_ARGUMENT,
    NotFound: grpc.StatusCode.NOT_FOUND,
}


_MOST_ENTRIES = 400_000  # of an answer; lists of devices have tens of thousands
_LARGE = 1000  # entries of a list that is sent
_FIELD = re.compile(r"(\w+) (\[|\{)?(\w+)[]}]?(\?)?(?: @(\d+))?")


@dataclass(frozen=True, slots=True)
class Call:
    """One RPC: its path, and the classes of its request and response."""

    path: str
    request: Any
    response: Any
    streams: bool

    def encode(self, fields: Mapping[str, Any]) -> bytes:
        """Raises TypeError or ValueError for a field that is unknown or of the wrong type."""
        return bytes(self.request(**fields).SerializeToString())

    def decode(self, data: bytes) -> Json:
        """Raises DecodeError, and ValueError for an answer of more entries than any plugin has."""
        return to_plain(self.response.FromString(data), Room(_MOST_ENTRIES))


class Api:
    """The calls of one proto package, by "Service.Method".

    `syntax`: with "proto2" a field that is set is sent also if it is 0, false or "".
    """

    def __init__(self, package: str, text: str, syntax: str = "proto3") -> None:
        self._package = package
        lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
        file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax=syntax)
        for line in lines:
            if not line.startswith("rpc "):
                name, _, fields = line.partition(":")
                _describe(file.message_type.add(name=name), fields, package)
        pool = descriptor_pool.DescriptorPool()
        pool.Add(file)  # type: ignore[no-untyped-call]
        self.messages = {
            one.name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{one.name}"))  # type: ignore[no-untyped-call]
            for one in file.message_type
        }
        self.calls = dict(self._call(line.split()) for line in lines if line.startswith("rpc "))

    def _call(self, words: list[str]) -> tuple[str, Call]:
        _, name, request, *rest = words
        service, method = name.split(".")
        path = f"/{self._package}.{service}/{method}"
        return name, Call(path, self.messages[request], self.messages[rest[-1]], rest[0] == "stream")

    def handler(self, service: str, methods: Mapping[str, Unary | Stream]) -> grpc.GenericRpcHandler:
        """The server side: `methods` by name take and return dicts; missing ones answer UNIMPLEMENTED."""
        made = {name: _method(self.calls[f"{service}.{name}"], work) for name, work in methods.items()}
        return grpc.method_handlers_generic_handler(f"{self._package}.{service}", made)


def _method(call: Call, work: Any) -> grpc.RpcMethodHandler:
    async def unary(request: Any, context: Any) -> Any:
        try:
            return await _encoded(call, await work(to_plain(request)))
        except NodewrightError as error:
            await context.abort(status_of(error), error.message)

    async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            async with aclosing(work(to_plain(request))) as answers:
                async for answer in answers:
                    yield call.response(**answer)
        except NodewrightError as error:
            await context.abort(status_of(error), error.message)

    kind = grpc.unary_stream_rpc_method_handler if call.streams else grpc.unary_unary_rpc_method_handler
    return kind(
        stream if call.streams else unary,
        request_deserializer=call.request.FromString,
        response_serializer=lambda made: made if isinstance(made, bytes) else made.SerializeToString(),
    )


async def _encoded(call: Call, answer: Mapping[str, Any]) -> Any:
    """The message, or its bytes, made in a thread, where a list of it is long: the event loop has other work."""
    large = any(len(value) > _LARGE for value in answer.values() if isinstance(value, list))
    return await asyncio.to_thread(_serialized, call, answer) if large else call.response(**answer)


def _serialized(call: Call, answer: Mapping[str, Any]) -> bytes:
    return bytes(call.response(**answer).SerializeToString())


def status_of(error: NodewrightError) -> grpc.StatusCode:
    """The status with which a call ends that raises this."""
    if isinstance(error, Refused):
        return grpc.StatusCode[error.code]
    return _STATUS.get(type(error), grpc.StatusCode.UNKNOWN)


def _describe(message: descriptor_pb2.DescriptorProto, fields: str, package: str) -> None:
    number = 0
    for part in [part.strip() for part in fields.split(",") if part.strip()]:
        found = _FIELD.fullmatch(part)
        if found is None:
            raise ValueError(f"{message.name}: {part!r} is not a field")
        name, shape, kind, optional, given = found.groups()
        number = int(given) if given else number + 1
        field = message.field.add(name=name, number=number, label=_Field.LABEL_REPEATED if shape else 1)
        if optional:
            field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{name}")
        if shape == "{":
            entry = message.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
            entry.options.map_entry = True
            _typed(entry.field.add(name="key", number=1, label=1), "string", package)
            _typed(entry.field.add(name="value", number=2, label=1), kind, package)
            kind = f"{message.name}.{entry.name}"
        _typed(field, kind, package)


def _typed(field: descriptor_pb2.FieldDescriptorProto, kind: str, package: str) -> None:
    scalar = _SCALARS.get(kind)
    if scalar is not None:
        field.type = scalar
    else:
        field.type = _Field.TYPE_MESSAGE
        field.type_name = f".{package}.{kind}"
