"""Kubeconfig files are read, and errors name the file and the field."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from agent.server.edge.certificates import ensure_self_signed
from nodelib.errors import Invalid
from nodelib.kube.access import ClusterAccess, load_kubeconfig
from nodelib.kube.client import ApiUnreachable, KubeClient

GOOD = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: "https://10.0.0.1:6443/", certificate-authority: ca.crt}}]
users: [{name: u, user: {token: secret, client-certificate: node.pem, client-key: node.pem}}]
"""


def test_relative_files_are_beside_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(b"CA")
    (tmp_path / "config").write_text(GOOD)
    access = load_kubeconfig(str(tmp_path / "config"))
    assert access.server == "https://10.0.0.1:6443"
    assert access.ca_data == b"CA"
    assert access.cert_file == str(tmp_path / "node.pem")
    assert "secret" not in repr(access)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not a mapping"),
        ("a: [", "expected"),
        (GOOD.replace("current-context: c", "current-context: x"), "'x'"),
        (GOOD.replace("server:", "url:"), "no server"),
        (GOOD.replace("certificate-authority: ca.crt", "certificate-authority-data: '%'"), "not base64"),
    ],
    ids=["empty", "no yaml", "no context", "no server", "bad base64"],
)
def test_bad_files_are_named_with_the_cause(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(Invalid) as caught:
        load_kubeconfig(str(path))
    assert str(path) in str(caught.value)
    assert said in str(caught.value)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="No such file"):
        load_kubeconfig(str(tmp_path / "none"))


def test_no_file_is_named() -> None:
    with pytest.raises(Invalid, match="--kubeconfig FILE"):
        load_kubeconfig("")


@pytest.mark.parametrize("field", ["cert_file", "key_file", "token_file"])
async def test_a_pipe_in_the_place_of_a_credential_is_not_waited_for(tmp_path: Path, field: str) -> None:
    """Nobody writes to it: OpenSSL waited for it without end, and `join --kubeconfig` with it."""
    cert, key = ensure_self_signed(str(tmp_path), ["api.example"], [])
    pipe = str(tmp_path / "pipe")
    os.mkfifo(pipe)
    named: dict[str, Any] = {"cert_file": cert, "key_file": key, field: pipe}
    access = ClusterAccess("https://127.0.0.1:1", **named)
    client = KubeClient(access, user_agent="test")
    asked = asyncio.create_task(asyncio.to_thread(asyncio.run, client.get("/version")))
    try:
        await asyncio.wait({asked}, timeout=30)
        assert asked.done()
        with pytest.raises(ApiUnreachable):
            await asked
    finally:
        os.close(os.open(pipe, os.O_RDWR | os.O_NONBLOCK))  # whoever waits for it goes on
        await asyncio.wait({asked})
