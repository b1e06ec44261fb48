"""What the API server promises for every object: optimistic locking, watches without gaps, quotas, admission."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from nodelib.kube.client import ApiError
from tests.builders.pods import manifest
from tests.cluster.https_servers import Server, https, webhook
from tests.cluster.world import Object, World

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root")]


async def test_the_second_writer_of_a_version_gets_409(world: World) -> None:
    """Optimistic locking: a write names the version it has read, and only the first one of it wins."""
    read = await world.config_map("shared", owner="nobody")
    first, second = ({**read, "data": {"owner": name}} for name in ("first", "second"))
    await world.api.put(world.path("configmaps", "shared"), first)
    with pytest.raises(ApiError) as refused:
        await world.api.put(world.path("configmaps", "shared"), second)
    assert (refused.value.code, refused.value.reason) == (409, "Conflict")
    again = await world.get("shared", "configmaps")
    assert again["data"] == {"owner": "first"}
    await world.api.put(world.path("configmaps", "shared"), {**again, "data": {"owner": "second"}})
    assert (await world.get("shared", "configmaps"))["data"] == {"owner": "second"}


async def test_a_watch_from_a_version_misses_nothing(world: World) -> None:
    """What changed between the list and the watch comes first, each change once and in order."""
    made = await world.config_map("counted", n="0")
    listed = await world.api.get(world.path("configmaps"))
    for number in ("1", "2"):  # nobody is watching yet
        await world.api.patch(world.path("configmaps", "counted"), {"data": {"n": number}})
    from_then = {"resourceVersion": listed["metadata"]["resourceVersion"], "fieldSelector": "metadata.name=counted"}
    seen: list[tuple[str, str]] = []
    async with asyncio.timeout(60):
        async for event in world.api.stream(world.path("configmaps"), from_then):
            seen.append((event["type"], event["object"]["data"]["n"]))
            if len(seen) == 2:
                await world.api.patch(world.path("configmaps", "counted"), {"data": {"n": "3"}})
            if len(seen) == 3:
                await world.api.delete(world.path("configmaps", "counted"))
            if event["type"] == "DELETED":
                break
    assert made["data"] == {"n": "0"}
    assert seen == [("MODIFIED", "1"), ("MODIFIED", "2"), ("MODIFIED", "3"), ("DELETED", "3")]


async def test_a_quota_refuses_what_is_beyond_it(world: World) -> None:
    hard = {"pods": "1", "requests.cpu": "100m"}
    await world.api.post(
        world.path("resourcequotas"),
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small"}, "spec": {"hard": hard}},
    )
    await world.until("small", lambda one: one.get("status", {}).get("used"), "counted", kind="resourcequotas")
    greedy = _asking(manifest("greedy"), "200m")
    with pytest.raises(ApiError, match=r"exceeded quota: small, requested: requests\.cpu=200m") as refused:
        await world.create(greedy)
    assert refused.value.code == 403
    await world.run(_asking(manifest("modest"), "50m"))
    with pytest.raises(ApiError, match="exceeded quota: small, requested: pods=1"):
        await world.create(_asking(manifest("second"), "10m"))
    await world.delete("modest")
    await world.gone("modest")
    await world.until(
        "small", lambda one: one["status"]["used"]["pods"] == "0", "given back", kind="resourcequotas", seconds=60
    )


async def test_a_mutating_webhook_changes_what_is_stored(world: World, tmp_path: Path) -> None:
    def label(_: Object) -> Object:
        patch = b'[{"op": "add", "path": "/metadata/labels", "value": {"seen": "yes"}}]'
        return {"allowed": True, "patchType": "JSONPatch", "patch": base64.b64encode(patch).decode()}

    async with (
        https(webhook(label), world.cluster.host_address, tmp_path) as server,
        _called(world, server, "mutating"),
    ):
        made = await _config_map_once(world, lambda one: (one["metadata"].get("labels") or {}).get("seen") == "yes")
    assert made["metadata"]["labels"] == {"seen": "yes"}


async def test_a_validating_webhook_refuses_with_its_own_words(world: World, tmp_path: Path) -> None:
    def judge(request: Object) -> Object:
        if "password" not in request["object"].get("data", {}):
            return {"allowed": True}
        return {"allowed": False, "status": {"code": 403, "message": "a password belongs into a Secret"}}

    async with (
        https(webhook(judge), world.cluster.host_address, tmp_path) as server,
        _called(world, server, "validating"),
    ):
        async with asyncio.timeout(60):
            refusal = ""
            for turn in range(200):  # the API server takes up a new webhook within a second or so
                try:
                    await world.config_map(f"secretive-{turn}", password="123")
                except ApiError as error:
                    refusal = str(error)
                    break
                await asyncio.sleep(0.1)
        assert "a password belongs into a Secret" in refusal
        await world.config_map("harmless", colour="blue")
    assert (await world.get("harmless", "configmaps"))["data"] == {"colour": "blue"}


def _asking(obj: Object, cpu: str) -> Object:
    for one in obj["spec"]["containers"]:
        one["resources"] = {"requests": {"cpu": cpu}}
    return obj


async def _config_map_once(world: World, wanted: object) -> Object:
    """Make ConfigMaps until one comes back as `wanted`: the API server takes up a new webhook within a second or so."""
    assert callable(wanted)
    made: Object = {}
    for turn in range(200):
        made = await world.config_map(f"one-{turn}", colour="blue")
        if wanted(made):
            break
        await asyncio.sleep(0.1)
    return made


@asynccontextmanager
async def _called(world: World, server: Server, kind: str) -> AsyncIterator[None]:
    """The API server asks `server` about every new ConfigMap of the test's namespace, for the block."""
    where = {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}}
    ca_bundle = base64.b64encode(server.authority.encode()).decode()
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    hook = {
        "name": "config-maps.nodewright.test",
        "clientConfig": {"url": f"{server.url}/", "caBundle": ca_bundle},
        "rules": [rule],
        "namespaceSelector": where,
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
    }
    base = f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations"
    await world.api.post(base, {"metadata": {"name": world.namespace}, "webhooks": [hook]})
    try:
        yield
    finally:
        await world.api.delete(f"{base}/{world.namespace}")
