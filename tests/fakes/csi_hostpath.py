"""A CSI driver that serves directories of this machine: a real process, real sockets, real mounts.

python -m tests.fakes.csi_hostpath --name DRIVER --root DIR --registry /var/lib/kubelet/plugins_registry …

Each volume is a directory (or, as a block device, a loop device on a file) below DIR, by its handle. What it was asked
is appended to DIR/calls.jsonl. A file DIR/fail with {"Method": "gRPC code"} makes these methods fail.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from nodelib import mounts
from nodelib.command import run
from nodelib.json_values import Json
from nodelib.plugin_apis.csi import CSI
from nodelib.plugin_apis.registration import REGISTRATION

_CAPABILITIES = {"stage": 1, "stats": 2, "expand": 3, "multi-writer": 5, "mount-group": 6}


class Hostpath:
    """The node service of the driver."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self.registered = asyncio.Event()
        os.makedirs(options.root, exist_ok=True)

    def methods(self) -> dict[str, Callable[[Json], Awaitable[Json]]]:
        work = {
            "NodeGetInfo": self.info,
            "NodeGetCapabilities": self.capabilities,
            "NodeStageVolume": self.stage,
            "NodeUnstageVolume": self.unstage,
            "NodePublishVolume": self.publish,
            "NodeUnpublishVolume": self.unpublish,
            "NodeExpandVolume": self.expand,
            "NodeGetVolumeStats": self.stats,
        }
        return {name: self._recorded(name, one) for name, one in work.items()}

    async def info(self, request: Json) -> Json:
        segments = dict(pair.split("=", 1) for pair in self._options.topology)
        return {
            "node_id": f"{self._options.name}-node",
            "max_volumes_per_node": 5,
            "accessible_topology": {"segments": segments} if segments else None,
        }

    async def capabilities(self, request: Json) -> Json:
        wanted = [_CAPABILITIES[name] for name in self._options.capabilities.split(",") if name]
        return {"capabilities": [{"rpc": {"type": one}} for one in wanted]}

    async def stage(self, request: Json) -> Json:
        if "block" not in request["volume_capability"]:
            _bind(self._volume(request["volume_id"]), request["staging_target_path"])
        return {}

    async def unstage(self, request: Json) -> Json:
        mounts.unmount(request["staging_target_path"])
        return {}

    async def publish(self, request: Json) -> Json:
        target = request["target_path"]
        if "block" in request["volume_capability"]:
            await self._publish_device(request["volume_id"], target)
            return {}
        os.makedirs(target, exist_ok=True)
        source = request["staging_target_path"] or self._volume(request["volume_id"])
        if mounts.mount_at(target) is None:
            _bind(source, target)
        for key, value in request["volume_context"].items():
            with open(f"{target}/{key.replace('/', '_')}", "w", encoding="utf-8") as file:
                file.write(value)
        return {}

    async def unpublish(self, request: Json) -> Json:
        target = request["target_path"]
        mounts.unmount(target)
        if os.path.isdir(target):
            os.rmdir(target)
        elif os.path.exists(target):
            os.unlink(target)
            await self._detach(request["volume_id"])
        if request["volume_id"].startswith("csi-"):
            shutil.rmtree(self._volume(request["volume_id"]))
        return {}

    async def expand(self, request: Json) -> Json:
        return {"capacity_bytes": request["capacity_range"]["required_bytes"]}

    async def stats(self, request: Json) -> Json:
        return {
            "usage": [
                {"unit": 1, "total": 1 << 30, "used": 4096, "available": (1 << 30) - 4096},
                {"unit": 2, "total": 100, "used": 3, "available": 97},
            ]
        }

    async def notified(self, request: Json) -> Json:
        self._record("NotifyRegistrationStatus", request)
        if request["plugin_registered"]:
            self.registered.set()
        return {}

    def _recorded(self, name: str, work: Callable[[Json], Awaitable[Json]]) -> Callable[[Json], Awaitable[Json]]:
        async def call(request: Json) -> Json:
            self._record(name, request)
            self._fail(name)
            return await work(request)

        return call

    def _record(self, name: str, request: Json) -> None:
        with open(f"{self._options.root}/calls.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps({"call": name, **request}) + "\n")

    def _fail(self, name: str) -> None:
        try:
            with open(f"{self._options.root}/fail", encoding="utf-8") as file:
                wanted = json.load(file).get(name)
        except FileNotFoundError:
            return
        if wanted:
            raise _Failure(wanted)

    async def _publish_device(self, handle: str, target: str) -> None:
        if os.path.exists(target) and mounts.mount_at(target) is not None:
            return
        file = f"{self._volume(handle)}/disk.img"
        with open(file, "ab") as image:
            image.truncate(1 << 20)
        device = (await run(["losetup", "--find", "--show", file])).text.strip()
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))
        mounts.mount(device, target, "", mounts.MS_BIND)

    async def _detach(self, handle: str) -> None:
        listed = await run(
            ["losetup", "--noheadings", "--output", "NAME", "--associated", self._volume(handle) + "/disk.img"]
        )
        for device in listed.text.split():
            await run(["losetup", "--detach", device])

    def _volume(self, handle: str) -> str:
        path = f"{self._options.root}/volumes/{handle}"
        os.makedirs(path, exist_ok=True)
        return path


class _Failure(Exception):
    pass


def _bind(source: str, target: str) -> None:
    if mounts.mount_at(target) is None:
        mounts.mount(source, target, "", mounts.MS_BIND)


class _Codes(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Turn a _Failure into its gRPC status."""

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        handler = await continuation(details)

        async def work(request: Any, context: Any) -> Any:
            try:
                return await handler.unary_unary(request, context)
            except _Failure as failure:
                await context.abort(grpc.StatusCode[str(failure)], f"{failure} as the test asked for")

        return handler._replace(unary_unary=work)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", required=True)
    parser.add_argument("--root", required=True)
    parser.add_argument("--registry", required=True)
    parser.add_argument("--capabilities", default="stage,stats,expand")
    parser.add_argument("--topology", action="append", default=[])
    options = parser.parse_args()
    driver = Hostpath(options)
    endpoint, registrar = f"{options.root}/csi.sock", f"{options.registry}/{options.name}-reg.sock"
    os.makedirs(options.registry, exist_ok=True)

    async def registration_info(request: Json) -> Json:
        return {
            "type": "CSIPlugin",
            "name": options.name,
            "endpoint": endpoint,
            "supported_versions": ["1.0.0"],
        }

    offers = {"GetInfo": registration_info, "NotifyRegistrationStatus": driver.notified}
    servers = [
        await _serve(endpoint, CSI.handler("Node", driver.methods())),
        await _serve(registrar, REGISTRATION.handler("Registration", offers)),
    ]
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    print("serving", flush=True)
    await stopping.wait()
    os.unlink(registrar)
    for server in servers:
        await server.stop(None)


async def _serve(socket: str, handler: grpc.GenericRpcHandler) -> grpc.aio.Server:
    if os.path.exists(socket):
        os.unlink(socket)
    server = grpc.aio.server(interceptors=[_Codes()])
    server.add_generic_rpc_handlers((handler,))
    server.add_insecure_port(f"unix://{socket}")
    await server.start()
    return server


if __name__ == "__main__":
    asyncio.run(main())
