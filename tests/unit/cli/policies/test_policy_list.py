"""`policy list`, and the workloads that `policy explain` takes."""

from __future__ import annotations

import json

import pytest

from cli.commands.policy_explain import asked, chosen
from cli.policies.list_text import HEADS, document, listings, row
from cli.policies.objects import Objects
from cli.why.wording import Wording
from nodelib.errors import Invalid, NotFound
from nodelib.json_values import Json
from nodelib.kube.listing import Listed
from policy.model import Name
from tests.builders.cluster_policies import BASELINE, cluster_policy, ingress
from tests.builders.policies import pod, policy


def owned(obj: Json, kind: str, owner: str, **labels: str) -> Json:
    obj["metadata"]["ownerReferences"] = [{"kind": kind, "name": owner, "controller": True}]
    obj["metadata"]["labels"] |= labels
    return obj


PODS = (
    owned(pod("web-5c-old", "10.0.0.1", phase="Failed"), "ReplicaSet", "web-5c", **{"pod-template-hash": "5c"}),
    owned(pod("web-5c-x", "10.0.0.2", labels={"app": "web"}), "ReplicaSet", "web-5c", **{"pod-template-hash": "5c"}),
    owned(pod("db-0", "10.0.0.3", labels={"app": "db"}), "StatefulSet", "db"),
    owned(pod("db-0", "10.0.1.3", namespace="b", labels={"app": "db"}), "StatefulSet", "db"),
    pod("host", "10.9.0.1", labels={"app": "web"}, hostNetwork=True),
)
SPACES = tuple({"metadata": {"name": name, "labels": {"team": name}}} for name in ("a", "b"))


def objects(policies: tuple[Json, ...] = (), cluster: tuple[Json, ...] = ()) -> Objects:
    return Objects(Listed(PODS), Listed(SPACES), Listed(policies), Listed(cluster))


def test_a_policy_that_selects_no_pod_is_listed_and_says_so() -> None:
    typo = policy("typo", select={"app": "wbe"})
    only_ended_or_of_the_host = policy("gone", select={"app": "web", "no": "such"})
    rows = [
        row(one) for one in listings(objects((typo, policy("web", select={"app": "web"}), only_ended_or_of_the_host)))
    ]
    assert rows == [
        ("a/gone", "-", "ingress", "selects no pod"),
        ("a/typo", "-", "ingress", "selects no pod"),
        ("a/web", "-", "ingress", "a/web-5c-x"),
    ]
    assert all(len(one) == len(HEADS) for one in rows)


def test_policies_are_in_the_order_in_which_they_decide() -> None:
    cluster = (
        cluster_policy("last", BASELINE, ingress=[ingress("Deny")]),
        cluster_policy("second", priority=20, ingress=[ingress("Deny")]),
        cluster_policy("first", priority=10, ingress=[ingress("Deny")]),
    )
    own = (policy("all"), policy("other", namespace="b"))
    found = listings(objects(own, cluster))
    assert [one.policy for one in found] == ["first", "second", "a/all", "b/other", "last"]
    assert row(found[0]) == ("first", "Admin 10", "ingress", "a/db-0, a/web-5c-x, b/db-0")
    assert [one.policy for one in listings(objects(own), "b")] == ["b/other"]


def test_many_pods_are_counted_and_scripts_get_them_all() -> None:
    crowd = tuple(pod(f"p{number}", f"10.0.0.{number}") for number in range(1, 9))
    many = Objects(Listed(crowd), Listed(SPACES), Listed((policy("all"),)))
    (one,) = listings(many)
    assert row(one)[-1] == "a/p1, a/p2, a/p3 and 5 more"
    assert len(json.loads(json.dumps(document([one], [])))["policies"][0]["pods"]) == 8


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("web-0", ("Pod", "d/web-0")),
        ("a/web-0", ("Pod", "a/web-0")),
        ("pod/web-0", ("Pod", "d/web-0")),
        ("deploy/web", ("Deployment", "d/web")),
        ("a/sts/db", ("StatefulSet", "a/db")),
    ],
)
def test_what_may_be_asked_about(text: str, wanted: tuple[str, str]) -> None:
    kind, name = asked(text, "d")
    assert (kind, str(name)) == wanted


@pytest.mark.parametrize("text", ["", "a/", "/b", "a/b/c", "svc/web", "node/n1", "a/b/c/d", "a/deploy/"])
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="not the name of a pod or of a workload"):
        asked(text, "d")


def test_a_workload_stands_for_a_pod_of_it_that_runs() -> None:
    known = objects()
    assert chosen("Deployment", Name("a", "web"), known, Wording()).name == Name("a", "web-5c-x")
    assert chosen("StatefulSet", Name("b", "db"), known, Wording()).name == Name("b", "db-0")
    for kind, name in (("Deployment", Name("b", "web")), ("DaemonSet", Name("a", "web"))):
        with pytest.raises(NotFound, match=f"no pod of {kind}"):
            chosen(kind, name, known, Wording())


@pytest.mark.parametrize("kind", ["Deployment", "Pod"])
def test_what_to_do_names_the_cluster_or_the_kubeconfig(kind: str) -> None:
    for wording, command in (
        (Wording("lab"), "`./nodewright kubectl --name lab get pods -A`"),
        (Wording(kubeconfig="/etc/admin.conf"), "`kubectl --kubeconfig=/etc/admin.conf get pods -A`"),
    ):
        with pytest.raises(NotFound) as caught:
            chosen(kind, Name("a", "nothing"), objects(), wording)
        assert command in caught.value.action


def test_the_name_of_a_policy_leads_to_the_list_of_its_pods() -> None:
    known = objects((policy("deny", select={"app": "web"}),))
    with pytest.raises(NotFound) as caught:
        chosen("Pod", Name("a", "deny"), known, Wording("lab"))
    assert "a/deny is a NetworkPolicy" in caught.value.action
    assert "`./nodewright policy list --name lab -n a`" in caught.value.action
