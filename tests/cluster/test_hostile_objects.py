"""What a tenant writes into an object, and the API server hands on as it came, keeps nobody from all other objects."""

from __future__ import annotations

import json
import os

import pytest

from tests.builders.pods import manifest, sleeper
from tests.builders.services import WEB_PORT, service
from tests.cluster.test_service import APP, answers_from, client, servers
from tests.cluster.world import Object, World

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root")]

NODE = "node1"
FIELDS = {
    "bytes that are no UTF-8": b'{"f:\xff":{}}',
    "levels that no parser reads": b'{"f:a":' * 1500 + b"{}" + b"}" * 1500,
}


@pytest.mark.parametrize("fields", FIELDS.values(), ids=FIELDS)
async def test_managed_fields_keep_nobody_from_pods_and_services(world: World, fields: bytes) -> None:
    await _create(world, "services", service("hostile", ports=[WEB_PORT]), fields)
    await _create(world, "pods", manifest("hostile", sleeper(), nodeName=NODE), fields)
    await world.ready("hostile")
    await world.kill(NODE, "agent")  # both list all objects anew
    await world.kill(NODE, "proxy")
    made = await world.create(service("web", selector=APP, ports=[WEB_PORT]))
    await servers(world, NODE)
    await client(world, NODE)
    await answers_from(world, f"http://{made['spec']['clusterIP']}/hostname", {"web-0"})


async def _create(world: World, kind: str, obj: Object, fields: bytes) -> None:
    """Sends these bytes as the object's managedFields."""
    entry = {"manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": "HERE"}
    entry["time"] = "2026-01-01T00:00:00Z"
    metadata = {**obj["metadata"], "namespace": world.namespace, "managedFields": [entry]}
    body = {**obj, "metadata": metadata}
    raw = json.dumps(body).encode().replace(b'"HERE"', fields)
    await world.kubectl("create", "--raw", world.path(kind), "-f", "-", stdin=raw)
    seen = await world.kubectl("get", kind, obj["metadata"]["name"], "-o", "name")
    assert seen.text.strip().endswith("/hostile")
