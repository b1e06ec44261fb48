"""The registry over real HTTP: what containerd's resolver and fetcher ask."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from controlplane.images.edge.archive import write_archive, write_layer
from controlplane.images.edge.registry import archives_below, catalogue, hosts_toml, serving
from controlplane.images.model.oci import RunConfig, file, make_image
from nodelib.errors import Invalid

NAME = "registry.k8s.io/e2e-test-images/a:1.0"


def make(folder: Path, text: str) -> None:
    folder.mkdir()
    layer = write_layer([file("a", text)], folder / "layer", compress=False)
    image = make_image([NAME], RunConfig(), [layer], "amd64")
    write_archive(image, {layer.digest: folder / "layer"}, folder / "image.tar")


@pytest.fixture
async def url(tmp_path: Path) -> AsyncIterator[str]:
    make(tmp_path / "a", "content of a file")
    async with serving(catalogue(archives_below(tmp_path)), "127.0.0.1", 0) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def test_a_pull_by_tag(url: str, http: aiohttp.ClientSession) -> None:
    async with http.get(f"{url}/v2/") as version:
        assert version.status == 200
    path = f"{url}/v2/e2e-test-images/a/manifests/1.0"
    async with http.head(path, params={"ns": "registry.k8s.io"}) as head:
        assert head.status == 200
        digest = head.headers["Docker-Content-Digest"]
        assert head.headers["Content-Type"] == "application/vnd.oci.image.manifest.v1+json"
    async with http.get(f"{url}/v2/e2e-test-images/a/manifests/{digest}") as answer:
        body = await answer.read()
        assert "sha256:" + hashlib.sha256(body).hexdigest() == digest
        manifest = await answer.json(content_type=None)
    for blob in (manifest["config"], *manifest["layers"]):
        async with http.get(f"{url}/v2/e2e-test-images/a/blobs/{blob['digest']}") as answer:
            content = await answer.read()
            assert "sha256:" + hashlib.sha256(content).hexdigest() == blob["digest"]
            assert len(content) == blob["size"]


@pytest.mark.parametrize(
    ("asked", "status", "first", "length"),
    [
        ("bytes=0-9", 206, 0, 10),
        ("bytes=100-", 206, 100, None),
        ("bytes=-5", 206, -5, 5),
        ("bytes=99999999-", 416, 0, 0),
        ("bytes=x", 416, 0, 0),
    ],
    ids=["head", "rest", "tail", "beyond", "nonsense"],
)
async def test_ranges(
    url: str, http: aiohttp.ClientSession, asked: str, status: int, first: int, length: int | None
) -> None:
    async with http.get(f"{url}/v2/e2e-test-images/a/manifests/1.0") as answer:
        layer = (await answer.json(content_type=None))["layers"][0]
    path = f"{url}/v2/e2e-test-images/a/blobs/{layer['digest']}"
    async with http.get(path) as answer:
        whole = await answer.read()
    async with http.get(path, headers={"Range": asked}) as answer:
        assert answer.status == status
        if status == 206:
            expected = whole[first:] if length is None or first < 0 else whole[first : first + length]
            assert await answer.read() == expected
            assert answer.headers["Content-Range"].endswith(f"/{layer['size']}")


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/v2/e2e-test-images/a/manifests/2.0", "MANIFEST_UNKNOWN"),
        ("/v2/e2e-test-images/a/manifests/1.0?ns=docker.io", "MANIFEST_UNKNOWN"),
        (f"/v2/e2e-test-images/a/blobs/sha256:{'0' * 64}", "BLOB_UNKNOWN"),
    ],
    ids=["tag", "other registry", "blob"],
)
async def test_what_is_not_here_is_said_in_the_specification_s_words(
    url: str, http: aiohttp.ClientSession, path: str, code: str
) -> None:
    async with http.get(url + path) as answer:
        assert answer.status == 404
        assert (await answer.json())["errors"][0]["code"] == code


def test_of_two_archives_of_a_name_the_last_used_counts(tmp_path: Path) -> None:
    import os

    make(tmp_path / "old", "1")
    make(tmp_path / "new", "2")
    os.utime(tmp_path / "new/image.tar", (10, 10))
    os.utime(tmp_path / "old/image.tar", (20, 20))
    used = catalogue([tmp_path / "old/image.tar"]).names[NAME]
    assert catalogue(archives_below(tmp_path)).names[NAME] == used


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="holds no image archive"):
        archives_below(tmp_path)


@pytest.mark.parametrize(
    ("fallback", "server"),
    [(True, "https://registry.k8s.io"), (False, "http://10.0.0.1:5000")],
    ids=["uplink", "no uplink"],
)
def test_hosts_toml(fallback: bool, server: str) -> None:
    import tomllib

    text = tomllib.loads(hosts_toml("registry.k8s.io", "http://10.0.0.1:5000", fallback=fallback))
    assert text == {"server": server, "host": {"http://10.0.0.1:5000": {"capabilities": ["pull", "resolve"]}}}
