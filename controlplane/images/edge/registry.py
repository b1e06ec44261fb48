"""A read-only image registry over OCI archives, for nodes that must pull (imagePullPolicy Always).

Serves the pull part of the OCI distribution specification 1.1: /v2/, manifests by tag and digest, blobs with ranges.
Blobs are read directly from the archives; nothing is unpacked or copied.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from controlplane.images.edge.layout import Blob, read_archive
from nodelib.errors import Invalid, NodewrightError

_CHUNK = 1 << 18
_VERSION = {"Docker-Distribution-Api-Version": "registry/2.0"}

# The registries in the names of our images.
UPSTREAM_REGISTRIES: tuple[str, ...] = ("registry.k8s.io",)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """What is served: full reference -> manifest descriptor, digest -> blob."""

    names: Mapping[str, dict[str, Any]]
    blobs: Mapping[str, Blob]

    def manifest(self, repository: str, reference: str, registry: str | None) -> dict[str, Any] | None:
        """The descriptor of `repository` at a tag or digest; `registry` is the upstream host of a mirror request."""
        for name, descriptor in self.names.items():
            host, _, rest = name.partition("/")
            path, _, tag = rest.rpartition(":")
            if (
                path == repository
                and reference in (tag, descriptor["digest"])
                and (registry is None or registry == host)
            ):
                return descriptor
        return None


def catalogue(archives: Iterable[Path]) -> Catalogue:
    """Read the archives' indexes; of two with the same name, the one that ensure_images used last counts.

    Raises Invalid for a file that is no OCI archive.
    """
    names: dict[str, dict[str, Any]] = {}
    blobs: dict[str, Blob] = {}
    for path in sorted(archives, key=lambda archive: archive.stat().st_mtime_ns):
        archive = read_archive(path)
        names |= archive.names
        blobs |= archive.blobs
    return Catalogue(names, blobs)


def archives_below(folder: Path) -> list[Path]:
    """Every image archive of the cache folder `folder` (cache/images)."""
    found = sorted(folder.glob("*/image.tar"))
    if not found:
        raise Invalid("holds no image archive", obj=str(folder), action="Give the images folder of the cache")
    return found


def hosts_toml(registry: str, endpoint: str, *, fallback: bool = True) -> str:
    """containerd's certs.d/REGISTRY/hosts.toml: pull from `endpoint` (http://IP:PORT) first.

    Without `fallback` the real registry is never asked: on nodes without an uplink that would only waste time.
    """
    server = f"https://{registry}" if fallback else endpoint
    return f'server = "{server}"\n\n[host."{endpoint}"]\n  capabilities = ["pull", "resolve"]\n'


def application(served: Catalogue) -> web.Application:
    """The aiohttp application; aiohttp's access log has every request."""

    async def version(request: web.Request) -> web.StreamResponse:
        return web.json_response({}, headers=_VERSION)

    async def manifest(request: web.Request) -> web.StreamResponse:
        repository, reference = request.match_info["repository"], request.match_info["reference"]
        descriptor = served.manifest(repository, reference, request.query.get("ns"))
        if descriptor is None:
            return _unknown("MANIFEST_UNKNOWN", f"{repository}:{reference}")
        return await _blob(request, served.blobs[descriptor["digest"]], descriptor["digest"], descriptor["mediaType"])

    async def blob(request: web.Request) -> web.StreamResponse:
        digest = request.match_info["digest"]
        found = served.blobs.get(digest)
        if found is None:
            return _unknown("BLOB_UNKNOWN", digest)
        return await _blob(request, found, digest, "application/octet-stream")

    app = web.Application()
    app.router.add_get("/v2/", version)
    app.router.add_get("/v2/{repository:.+}/manifests/{reference}", manifest)
    app.router.add_get("/v2/{repository:.+}/blobs/{digest}", blob)
    return app


@contextlib.asynccontextmanager
async def serving(served: Catalogue, host: str, port: int) -> AsyncIterator[int]:
    """Serve until the block ends; yields the port (useful with port 0). Raises OSError when it cannot listen."""
    runner = web.AppRunner(application(served))
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def _unknown(code: str, what: str) -> web.Response:
    errors = {"errors": [{"code": code, "message": f"not in this registry: {what}"}]}
    return web.json_response(errors, status=404, headers=_VERSION)


async def _blob(request: web.Request, blob: Blob, digest: str, media_type: str) -> web.StreamResponse:
    headers = {
        **_VERSION,
        "Content-Type": media_type,
        "Docker-Content-Digest": digest,
        "Accept-Ranges": "bytes",
        "ETag": f'"{digest}"',
    }
    try:
        wanted = request.http_range
    except ValueError:
        return web.Response(status=416, headers={**headers, "Content-Range": f"bytes */{blob.size}"})
    start, stop, _ = slice(wanted.start, wanted.stop).indices(blob.size)
    partial = wanted.start is not None or wanted.stop is not None
    if partial and start >= stop:
        return web.Response(status=416, headers={**headers, "Content-Range": f"bytes */{blob.size}"})
    if partial:
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{blob.size}"
    response = web.StreamResponse(status=206 if partial else 200, headers=headers)
    response.content_length = stop - start
    await response.prepare(request)
    if request.method != "HEAD":
        await _send(response, blob, start, stop)
    await response.write_eof()
    return response


async def _send(response: web.StreamResponse, blob: Blob, start: int, stop: int) -> None:
    with blob.archive.open("rb") as handle:
        handle.seek(blob.offset + start)
        while start < stop:
            chunk = await asyncio.to_thread(handle.read, min(_CHUNK, stop - start))
            if not chunk:
                raise NodewrightError("is shorter than its index says", obj=str(blob.archive), action="Remove it")
            await response.write(chunk)
            start += len(chunk)


async def _run(served: Catalogue, host: str, port: int) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with serving(served, host, port) as listening:
        print(f"serving {len(served.names)} images on {host}:{listening}", flush=True)
        await stop.wait()


def main(argv: list[str] | None = None) -> int:
    """`python -m controlplane.images.edge.registry --listen IP:PORT --images DIR`: runs until SIGTERM."""
    parser = argparse.ArgumentParser(prog="controlplane.images.edge.registry", description=__doc__)
    parser.add_argument("--listen", required=True, metavar="IP:PORT")
    parser.add_argument("--images", required=True, type=Path, metavar="DIR", help="the images folder of the cache")
    options = parser.parse_args(argv)
    host, _, port = options.listen.rpartition(":")
    if not host or not port.isdigit():
        parser.error(f"--listen {options.listen}: IP:PORT expected")
    try:
        asyncio.run(_run(catalogue(archives_below(options.images)), host.strip("[]"), int(port)))
    except (NodewrightError, OSError) as error:
        print(f"registry: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
