"""Dynamic resource allocation on a real cluster: scheduler, claim controller, driver, CDI."""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from functools import partial
from pathlib import Path

import pytest

from nodelib.kube.client import ApiError
from tests.builders.pods import manifest, sleeper
from tests.cluster.plugin_processes import REGISTRY, start
from tests.cluster.world import Object, World, containers_of

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root")]

_RESOURCE = "/apis/resource.k8s.io/v1"


async def test_a_claim_from_a_template(world: World) -> None:
    """Allocated by the scheduler, prepared by the driver, seen in the container, and undone with the pod."""
    node, name = world.cluster.nodes[0].name, f"dra-{uuid.uuid4().hex[:5]}.test"
    inside = f"/var/lib/kubelet/plugins/{name}"
    argv = ["-m", "tests.fakes.dra_driver", "--name", name, "--root", inside, "--registry", REGISTRY]
    folder = Path(world.cluster.node_dir(node), "kubelet/plugins", name)
    await world.api.post(f"{_RESOURCE}/deviceclasses", device_class(name))
    await world.api.post(f"{_RESOURCE}/resourceslices", slice_of(name, node))
    base = f"{_RESOURCE}/namespaces/{world.namespace}"
    await world.api.post(f"{base}/resourceclaimtemplates", template(name))
    driver = await start(world, node, folder, sys.executable, *argv, "--cdi", "/var/run/cdi", says=b"serving")
    try:
        box = sleeper(resources={"claims": [{"name": "acc"}]})
        claims = [{"name": "acc", "resourceClaimTemplateName": "one"}]
        made = await world.run(manifest("user", box, resourceClaims=claims))
        claim = made["status"]["resourceClaimStatuses"][0]["resourceClaimName"]
        assert (await world.shell("user", "echo $CLAIM")).strip() == claim
        assert [one["name"] for one in driver.calls("NodePrepareResources")[0]["claims"]] == [claim]

        await world.kill(node, "agent")
        await world.agent_well(node)
        assert containers_of([await world.get("user")]) == containers_of([made])
        await _published_again(world, slice_of(name, node))
        await world.delete("user")
        await world.gone("user")
        assert [one["name"] for one in driver.calls("NodeUnprepareResources")[-1]["claims"]] == [claim]
        assert len(driver.calls("NodePrepareResources")) == 1

        await driver.stop()
        await world.create(manifest("waits", box, resourceClaims=claims))
        await world.event("waits", "FailedPrepareDynamicResources", f"DRA driver {name} is not registered")
    finally:
        await driver.stop()
        await world.api.delete(f"{_RESOURCE}/resourceslices/{node}-{name}")
        await world.api.delete(f"{_RESOURCE}/deviceclasses/{name}")


async def _published_again(world: World, made: Object) -> None:
    """When the agent starts no driver has registered, so it deletes the node's ResourceSlices, as upstream's kubelet
    does; drivers publish theirs once more."""
    async with asyncio.timeout(120):
        with pytest.raises(ApiError, match="not found"):
            while True:
                await world.api.get(f"{_RESOURCE}/resourceslices/{made['metadata']['name']}")
                await asyncio.sleep(0.2)
    await world.api.post(f"{_RESOURCE}/resourceslices", made)


async def test_an_extended_resource_by_a_claim_and_the_health_of_its_device(world: World) -> None:
    """The scheduler maps it to a claim that nobody wrote; a pod that names a claim shows how its device is."""
    node, name = world.cluster.nodes[0].name, f"dra-{uuid.uuid4().hex[:5]}.test"
    inside, gpu = f"/var/lib/kubelet/plugins/{name}", f"{name}/gpu"
    argv = ["-m", "tests.fakes.dra_driver", "--name", name, "--root", inside, "--registry", REGISTRY]
    folder = Path(world.cluster.node_dir(node), "kubelet/plugins", name)
    made_class = device_class(name)
    made_class["spec"]["extendedResourceName"] = gpu
    await world.api.post(f"{_RESOURCE}/deviceclasses", made_class)
    await world.api.post(f"{_RESOURCE}/resourceslices", slice_of(name, node))
    await world.api.post(f"{_RESOURCE}/namespaces/{world.namespace}/resourceclaimtemplates", template(name))
    argv += ["--cdi", "/var/run/cdi", "--request="]
    driver = await start(world, node, folder, sys.executable, *argv, says=b"serving")
    try:
        asked = {"requests": {gpu: "1"}, "limits": {gpu: "1"}}
        made = await world.run(manifest("extended", sleeper(resources=asked)))
        claim = made["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
        assert (await world.shell("extended", "echo $CLAIM")).strip() == claim
        await world.delete("extended")
        await world.gone("extended")
        assert [one["name"] for one in driver.calls("NodeUnprepareResources")[-1]["claims"]] == [claim]

        box = sleeper(resources={"claims": [{"name": "acc"}]})
        claims = [{"name": "acc", "resourceClaimTemplateName": "one"}]
        await world.run(manifest("watched", box, resourceClaims=claims))
        for number, message, health in ((1, "", "Healthy"), (2, "too hot", "Unhealthy")):
            (folder / "health").write_text(f"{number} {message}")
            shown = (health, message)
            await world.until("watched", partial(_shows, shown), f"health {shown}")
    finally:
        await driver.stop()
        await world.api.delete(f"{_RESOURCE}/resourceslices/{node}-{name}")
        await world.api.delete(f"{_RESOURCE}/deviceclasses/{name}")


def _shows(shown: tuple[str, str], made: Object) -> bool:
    return health_of(made) == shown


def health_of(made: Object) -> tuple[str, str]:
    """Health and message of the one device of a pod's container."""
    (status,) = made["status"]["containerStatuses"]
    listed = [one for claim in status.get("allocatedResourcesStatus") or () for one in claim["resources"]]
    return (listed[0]["health"], listed[0].get("message", "")) if listed else ("", "")


def device_class(name: str) -> Object:
    selector = {"cel": {"expression": f'device.driver == "{name}"'}}
    return {"metadata": {"name": name}, "spec": {"selectors": [selector]}}


def slice_of(name: str, node: str) -> Object:
    pool = {"name": "pool", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": name, "nodeName": node, "pool": pool, "devices": [{"name": "dev-0"}]}
    return {"metadata": {"name": f"{node}-{name}"}, "spec": spec}


def template(name: str) -> Object:
    request = {"name": "one", "exactly": {"deviceClassName": name}}
    return {"metadata": {"name": "one"}, "spec": {"spec": {"devices": {"requests": [request]}}}}
