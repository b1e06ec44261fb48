"""`export logs`: the folder answers a bug report, and no key, token or Secret of the cluster is in it."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.pods import manifest, sleeper
from tests.cluster.command_line import cli
from tests.cluster.world import World

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root")]
_PEM = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----(.*?)-----END", re.DOTALL)


async def test_the_folder_has_all_that_helps_and_no_secret(world: World, tmp_path: Path) -> None:
    secret, variable = f"value-of-{world.namespace}", f"variable-of-{world.namespace}"
    applied = json.dumps({"kind": "Secret", "stringData": {"pw": secret}})
    notes = {"kubectl.kubernetes.io/last-applied-configuration": applied, "example.test/copy": secret}
    data = {"pw": base64.b64encode(secret.encode()).decode()}
    path = world.path("secrets")
    await world.api.post(path, {"metadata": {"name": "db", "annotations": notes}, "data": data})
    said = f"echo the password is {secret}; exec sleep 1000"
    pod = manifest("talks", sleeper(command=["sh", "-c", said], env=[{"name": "DB_PASSWORD", "value": variable}]))
    await world.create(pod)
    await world.ready("talks")
    token = (await world.shell("talks", "cat /var/run/secrets/kubernetes.io/serviceaccount/token")).strip()
    began = time.monotonic()
    folder = tmp_path / "report"
    done = await asyncio.to_thread(cli, "export", "logs", str(folder), "--name", world.cluster.name, timeout=300)
    assert time.monotonic() - began < 200
    assert f"{folder}: " in done.stdout and "look through it" in done.stdout

    texts = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
    for name, word in {
        "versions.json": "kubernetes",
        "cluster.json": world.cluster.subnet,
        "status.txt": world.cluster.name,
        "doctor.txt": "root",
        "why.txt": "",
        "control-plane/log/kube-apiserver.log": "",
        "node1/log/agent.log": "",
        "node2/log/containerd.log": "",
        "node1/configuration/kubelet.yaml": "KubeletConfiguration",
        "node1/addresses.txt": world.cluster.nodes[0].address,
        "node1/routes.txt": "dev",
        "node1/iptables.txt": "KUBE-SERVICES",
        "node1/processes.txt": "containerd",
        "cgroups.txt": f"{world.cluster.cgroup}/node1",
        "objects/pods.json": "talks",
        "objects/secrets.json": '"db"',
        "objects/events.json": "talks",
        "CONTENTS.txt": "objects/pods.json",
    }.items():
        assert word in texts[name], f"{name}: {texts[name][:500]}"
    secrets = [secret, data["pw"], variable, token, *_keys(Path(world.cluster.dir))]
    assert len(secrets) > 20
    assert [(name, one[:12]) for name, text in texts.items() for one in secrets if one in text] == []
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.rglob("*") if path.name != "CONTENTS.txt")
    assert sum(map(len, texts.values())) < 200e6


def _keys(folder: Path) -> Iterator[str]:
    """Lines of every private key of the cluster, and the credentials of its kubeconfigs."""
    found = [*folder.glob("pki/**/*"), *folder.glob("*.conf"), *folder.glob("node*/kubernetes/**/*")]
    for path in [*found, *folder.glob("node*/kubelet/pki/*")]:
        if path.is_file():
            text = path.read_text(errors="replace")
            yield from (line for body in _PEM.findall(text) for line in body.split() if len(line) > 30)
            yield from (value[:200] for value in re.findall(r"(?:client-key-data|token): (\S{20,})", text))
