"""A DRA driver that hands out environment variables: a real process, real sockets, a real CDI file.

python -m tests.fakes.dra_driver --name DRIVER --root DIR --registry DIR --cdi /var/run/cdi [--request NAME]

The file `health` in its root says how its device is: a number of HealthStatus and a message.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator

from agent.plugins.edge.apis import DRA, DRA_HEALTH
from nodelib.json_values import Json
from nodelib.plugin_apis.registration import REGISTRATION
from nodelib.plugin_apis.server import serve


class Driver:
    """Each prepared claim is a CDI device that sets CLAIM to its name."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._kind = f"{options.name}/claim"
        self._file = f"{options.cdi}/{options.name}.json"
        self._claims: dict[str, str] = {}
        for folder in (options.root, options.registry, options.cdi):
            os.makedirs(folder, exist_ok=True)

    async def prepare(self, request: Json) -> Json:
        self._record("NodePrepareResources", request)
        self._claims |= {one["uid"]: one["name"] for one in request["claims"]}
        self._write()
        return {"claims": {one["uid"]: {"devices": [self._device(one["uid"])]} for one in request["claims"]}}

    async def unprepare(self, request: Json) -> Json:
        self._record("NodeUnprepareResources", request)
        for one in request["claims"]:
            self._claims.pop(one["uid"], None)
        self._write()
        return {"claims": {one["uid"]: {} for one in request["claims"]}}

    async def info(self, request: Json) -> Json:
        endpoint = f"{self._options.root}/dra.sock"
        versions = ["v1.DRAPlugin", "v1.DRAResourceHealth"]
        return {"type": "DRAPlugin", "name": self._options.name, "endpoint": endpoint, "supported_versions": versions}

    async def health(self, request: Json) -> AsyncIterator[Json]:
        """What the file says, at first and after each change."""
        last, device = "", {"pool_name": "pool", "device_name": "dev-0"}
        while True:
            with contextlib.suppress(FileNotFoundError), open(f"{self._options.root}/health", encoding="utf-8") as file:
                number, _, message = (text := file.read()).partition(" ")
                if number.isdigit() and text != last:
                    yield {"devices": [{"device": device, "health": int(number), "message": message}]}
                    last = text
            await asyncio.sleep(0.1)

    async def notified(self, request: Json) -> Json:
        self._record("NotifyRegistrationStatus", request)
        return {}

    def end(self) -> None:
        if os.path.exists(self._file):
            os.unlink(self._file)

    def _device(self, uid: str) -> Json:
        requests = [self._options.request] if self._options.request else []
        names = {"request_names": requests, "pool_name": "pool", "device_name": "dev-0"}
        return {**names, "cdi_device_ids": [f"{self._kind}={uid}"]}

    def _write(self) -> None:
        devices = [
            {"name": uid, "containerEdits": {"env": [f"CLAIM={name}"]}} for uid, name in sorted(self._claims.items())
        ]
        with open(f"{self._file}.new", "w", encoding="utf-8") as file:
            json.dump({"cdiVersion": "0.6.0", "kind": self._kind, "devices": devices}, file)
        if devices:
            os.replace(f"{self._file}.new", self._file)
        else:
            os.unlink(f"{self._file}.new")
            self.end()

    def _record(self, name: str, request: Json) -> None:
        with open(f"{self._options.root}/calls.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps({"call": name, **request}) + "\n")


async def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--name", "--root", "--registry", "--cdi"):
        parser.add_argument(name, required=True)
    parser.add_argument("--request", default="one")
    options = parser.parse_args()
    driver = Driver(options)
    registrar = f"{options.registry}/{options.name}-reg.sock"
    methods = {"NodePrepareResources": driver.prepare, "NodeUnprepareResources": driver.unprepare}
    answers = {"GetInfo": driver.info, "NotifyRegistrationStatus": driver.notified}
    handlers = [
        DRA.handler("DRAPlugin", methods),
        DRA_HEALTH.handler("DRAResourceHealth", {"NodeWatchResources": driver.health}),
    ]
    servers = [
        await serve(f"{options.root}/dra.sock", handlers),
        await serve(registrar, [REGISTRATION.handler("Registration", answers)]),
    ]
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    print("serving", flush=True)
    await stopping.wait()
    os.unlink(registrar)
    for server in servers:
        await server.stop(None)
    driver.end()


if __name__ == "__main__":
    asyncio.run(main())
