"""ClusterNetworkPolicies in a real API server: our CRD, what it refuses, and the daemon's watch with its own rights."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import pytest

from controlplane.cluster.plan import manifests, policy_api
from controlplane.cluster.plan.certificates import POLICY_USER
from controlplane.cluster.work import policy_api as work
from controlplane.cluster.work import workloads
from nodelib.clock import SystemClock
from nodelib.json_values import Json
from nodelib.kube.client import ApiError, KubeClient
from nodelib.kube.definition import CRDS
from nodelib.tasks import cancel_and_wait
from policy.plan import parse_cluster
from policy.watches.cluster_policies import POLICIES, ClusterWatch
from tests.builders.cluster_policies import (
    BASELINE,
    cluster_policy,
    egress,
    everybody,
    ingress,
    named,
    networks,
    nodes,
    pods,
    port,
    spaces,
)
from tests.netns import api_server
from tests.netns.api_server import ApiServer, run_inside
from tests.waiting import until

pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]

CRD = f"{CRDS}/{policy_api.NAME}"
USER = "daemon"  # a name that the API server has a token for
MOST = parse_cluster.MOST


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with api_server.running(tmp_path_factory.mktemp("api"), [USER]) as one:
        yield one


def client(api: ApiServer, user: str = "admin") -> KubeClient:
    return KubeClient(api.access(user), user_agent="test")


def whole(obj: Json, name: str = "c") -> Json:
    kind = {"apiVersion": f"{policy_api.GROUP}/{policy_api.VERSION}", "kind": policy_api.KIND}
    return {**kind, **obj, "metadata": {"name": name}}


async def established(admin: KubeClient) -> Json:
    async def condition() -> Json | None:
        found = await admin.get(CRD)
        conditions = {one["type"]: one["status"] for one in found["status"].get("conditions") or []}
        wanted = ("Established", "KubernetesAPIApprovalPolicyConformant")
        return found if all(conditions.get(one) == "True" for one in wanted) else None

    found: Json = await until(condition)
    return found


def test_the_watch_follows_the_crd_with_the_rights_that_up_gives_it(api: ApiServer) -> None:
    async def scenario() -> None:
        policies: dict[str, Any] = {}

        def on_policy(kind: str, obj: Json) -> None:
            name = obj["metadata"]["name"]
            if kind == "DELETED":
                policies.pop(name, None)
            else:
                policies[name] = parse_cluster.cluster_policy(obj)

        async with client(api) as admin, client(api, USER) as own:
            roles = [one for one in manifests.rights() if one["metadata"]["name"] == POLICY_USER]
            for one in roles:
                for subject in one.get("subjects", ()):
                    subject["name"] = f"system:node:{USER}"
            await workloads.apply(admin, roles, SystemClock())
            watch = ClusterWatch(own, on_policy=on_policy, on_node=lambda kind, obj: None)
            task = asyncio.create_task(watch.run())
            await asyncio.wait_for(watch.ready.wait(), 20)
            assert watch.last_error == "" and not policies
            await work.ensure(admin, SystemClock())
            crd = await established(admin)
            conditions = {one["type"]: one["status"] for one in crd["status"]["conditions"]}
            assert "NonStructuralSchema" not in conditions
            # What is written at once, while the policies are served a moment later, is told, too.
            await until(lambda: _created(admin, whole(cluster_policy(ingress=[ingress("Deny")]))))
            await until(lambda: "c" in policies)
            policy, problems = policies["c"]
            assert policy is not None and not problems
            await admin.delete(CRD)
            await until(lambda: not policies)
            assert not task.done()
            await cancel_and_wait(task)

    run_inside(api.netns, scenario)


async def _created(admin: KubeClient, obj: Json) -> bool:
    try:
        await admin.post(POLICIES, obj)
    except ApiError as error:
        assert error.code == 404, error
        return False
    return True


_LONG: Json = ingress("Deny", name="x" * 100)
GOOD = {
    "everything": cluster_policy(
        priority=0,
        subject=pods("a", team="red"),
        ingress=[ingress("Accept", spaces(team="blue"), pods("b"), protocols=[port(1, 65535), named("web")])] * MOST,
        egress=[
            egress("Pass", nodes(os="linux"), networks("10.0.0.0/8", "fd00::/8"), protocols=[port(53, protocol="udp")]),
            egress("Accept", {"domainNames": ["*.example.com", "example.com."]}, *[everybody()] * (MOST - 1)),
        ],
    ),
    "the least": cluster_policy(tier=BASELINE, priority=1000),
    "a name of 100 characters": cluster_policy(ingress=[_LONG]),
}
BAD = {
    "tier": cluster_policy(tier="NetworkPolicy"),
    "priority": cluster_policy(priority=1001),
    "no subject": cluster_policy(subject={"nodes": {}}),
    "two subjects": cluster_policy(subject={**everybody(), **pods()}),
    "an action": cluster_policy(ingress=[ingress("Allow")]),
    "too many rules": cluster_policy(ingress=[ingress("Deny")] * (MOST + 1)),
    "too many peers": cluster_policy(egress=[egress("Deny", *[everybody()] * (MOST + 1))]),
    "no peers": cluster_policy(egress=[{"action": "Deny", "to": []}]),
    "nodes as a peer of ingress": cluster_policy(ingress=[ingress("Deny", nodes())]),
    "two peers in one": cluster_policy(egress=[egress("Deny", {**everybody(), **nodes()})]),
    "no protocols": cluster_policy(ingress=[ingress("Deny", protocols=[])]),
    "too many protocols": cluster_policy(ingress=[ingress("Deny", protocols=[port(80)] * (MOST + 1))]),
    "tcp without a port": cluster_policy(ingress=[ingress("Deny", protocols=[{"tcp": {}}])]),
    "port 0": cluster_policy(ingress=[ingress("Deny", protocols=[port(0)])]),
    "a range that ends where it starts": cluster_policy(ingress=[ingress("Deny", protocols=[port(80, 80)])]),
    "no network": cluster_policy(egress=[egress("Deny", networks("10.0.0.0/33"))]),
    "too many networks": cluster_policy(egress=[egress("Deny", networks(*[f"10.{n}.0.0/16" for n in range(26)]))]),
    "the same network twice": cluster_policy(egress=[egress("Deny", networks("10.0.0.0/8", "10.0.0.0/8"))]),
    "a named port of a network": cluster_policy(
        egress=[egress("Deny", networks("10.0.0.0/8"), protocols=[named("web")])]
    ),
    "a domain": cluster_policy(egress=[egress("Accept", {"domainNames": ["www.*.com"]})]),
    "a name of 101 characters": cluster_policy(ingress=[{**_LONG, "name": "x" * 101}]),
}


def test_the_crd_takes_and_refuses_what_v0_2_0_does(api: ApiServer) -> None:
    async def scenario() -> None:
        async with client(api) as admin:
            await work.ensure(admin, SystemClock())
            await established(admin)
            await until(lambda: _created(admin, whole(cluster_policy(), "first")))
            for name, obj in GOOD.items():
                stored = await admin.post(POLICIES, whole(obj))
                assert stored["spec"] == obj["spec"], name
                _, problems = parse_cluster.cluster_policy(stored)
                assert problems == [], name
                await admin.delete(f"{POLICIES}/c")
            for name, obj in BAD.items():
                with pytest.raises(ApiError) as raised:
                    await admin.post(POLICIES, whole(obj))
                assert raised.value.code == 422, (name, raised.value)

    run_inside(api.netns, scenario)


def test_a_crd_that_is_somebody_else_s_stays(api: ApiServer) -> None:
    async def scenario() -> None:
        async with client(api) as admin:
            await work.ensure(admin, SystemClock())
            await established(admin)
            short = {"spec": {"names": {"shortNames": ["mine"]}}}
            await admin.patch(CRD, short)
            await work.ensure(admin, SystemClock())
            assert (await admin.get(CRD))["spec"]["names"]["shortNames"] == ["cnp"], "ours is mended"
            await admin.patch(CRD, {**short, "metadata": {"labels": dict.fromkeys(policy_api.OWNER)}})
            await work.ensure(admin, SystemClock())
            assert (await admin.get(CRD))["spec"]["names"]["shortNames"] == ["mine"]

    run_inside(api.netns, scenario)
