"""What the enforcer and the user are told of ClusterNetworkPolicies, and the event that comes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from nodelib.firewall.objects import Family
from nodelib.json_values import Json
from nodelib.kube.access import ClusterAccess
from nodelib.kube.client import KubeClient
from nodelib.kube.definition import CRDS
from nodelib.kube.events import Events
from nodelib.tasks import cancel_and_wait
from policy.enforcer import Enforcer
from policy.model import Name, Problem
from policy.plan import parse
from policy.plan.parse_cluster import KIND
from policy.plan.program import Planner
from policy.watches.cluster_intake import ClusterIntake
from policy.watches.cluster_policies import GROUP, POLICIES, VERSION
from tests.builders.cluster_policies import cluster_policy, egress, ingress
from tests.builders.policies import pod
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import FakeClock
from tests.fakes.policies import Silent
from tests.fakes.policy_kernel import FakePolicyTable, Flow, allowed
from tests.waiting import until

CRD: Json = {
    "metadata": {"name": "clusternetworkpolicies.policy.networking.k8s.io"},
    "spec": {"versions": [{"name": VERSION, "served": True}]},
    "status": {"conditions": [{"type": "Established", "status": "True"}]},
}
DOMAINS = egress("Accept", {"domainNames": ["example.com"]})
A, B = "10.0.0.1", "10.0.0.2"


async def test_policies_reach_the_kernel_and_problems_the_user() -> None:
    planners = {Family.IPV4: Planner(Family.IPV4, "node1", report=False)}
    enforcer = Enforcer({Family.IPV4: FakePolicyTable()}, planners, FakeClock(), Silent())
    enforcer.set_namespace("a", {})
    for obj in (pod("a1", A), pod("a2", B)):
        one = parse.pod(obj)
        enforcer.set_pod(one.name, one)
    notes: list[tuple[str, str, Sequence[Problem]]] = []
    gone: list[Name] = []

    def passes() -> bool:
        return allowed(enforcer.programs[Family.IPV4], Flow(B, A))

    async with FakeApiServer() as api, KubeClient(ClusterAccess(api.url), user_agent="test") as client:
        await api.put(f"{CRDS}/{CRD['metadata']['name']}", CRD)
        await api.put(f"{POLICIES}/deny", cluster_policy("deny", ingress=[ingress("Deny")]))
        intake = ClusterIntake(client, enforcer, lambda *note: notes.append(note), gone.append, "not here")
        task = asyncio.create_task(intake.watch.run())
        await asyncio.wait_for(intake.watch.ready.wait(), 5)
        enforcer.start()
        await enforcer.sync()
        assert not passes() and notes == [("deny", "uid-deny", [])], "an event about it needs its UID"

        await api.put(f"{POLICIES}/many", cluster_policy("many", egress=[DOMAINS] * 7))
        await until(lambda: len(notes) == 2)
        name, uid, problems = notes[1]
        assert (name, uid) == ("many", "uid-many")
        assert len(problems) == 7
        assert all("domainNames: not here, so the rule accepts nothing" in one.message for one in problems)

        await api.put(f"{POLICIES}/deny", cluster_policy("deny", priority=5000, ingress=[ingress("Deny")]))
        await until(lambda: len(notes) == 3)
        await enforcer.sync()
        assert passes(), "a policy that is skipped is not in force any more"
        assert "the whole policy is skipped" in notes[2][2][0].message

        await api.remove(f"{POLICIES}/deny")
        await until(lambda: gone == [Name("", "deny")])
        await cancel_and_wait(task)


async def test_the_event_is_about_the_object_and_has_a_name_that_the_api_takes() -> None:
    async with FakeApiServer() as api, KubeClient(ClusterAccess(api.url), user_agent="test") as client:
        name = "a" * 200 + "." + "b" * 52
        await Events(client, "node1", FakeClock(), "nodewright-policy").record(
            KIND, "", name, reason="r", action="a", note="n", warning=True, api_version=f"{GROUP}/{VERSION}", uid="u"
        )
        (event,) = api.objects.values()
    wanted = {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "namespace": "", "name": name, "uid": "u"}
    assert event["regarding"] == wanted
    assert len(event["metadata"]["name"]) <= 253 and ".." not in event["metadata"]["name"]
