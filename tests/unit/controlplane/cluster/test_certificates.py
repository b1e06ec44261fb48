"""Which certificates a cluster has, and when one is issued again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controlplane.cluster.model import Cluster, Options
from controlplane.cluster.plan.certificates import Certificate, Existing, certificates, kubeconfigs, must_issue

NOW = 1_800_000_000.0
YEAR = 365 * 86400.0
CLUSTER = Cluster("lab", "10.89.3.0/24", Options(nodes=2))
WANTED = Certificate("/p/server", "server", "/p/ca", "server", "org", ("a", "b"), ("10.0.0.1",))
GOOD = Existing("id", "server", "org", frozenset({"a", "b"}), frozenset({"10.0.0.1"}), NOW + YEAR)


@pytest.mark.parametrize(
    ("held", "reason"),
    [
        pytest.param(GOOD, "", id="good"),
        pytest.param(None, "missing", id="missing"),
        pytest.param(replace(GOOD, not_after=NOW + 86400), "expires soon", id="ends tomorrow"),
        pytest.param(replace(GOOD, not_after=NOW - 1), "expires soon", id="ended"),
        pytest.param(replace(GOOD, issuer_key="other"), "signed by another authority", id="old authority"),
        pytest.param(replace(GOOD, common_name="x"), "another subject", id="subject"),
        pytest.param(replace(GOOD, organization="x"), "another subject", id="organization"),
        pytest.param(replace(GOOD, dns=frozenset({"a"})), "other names", id="a name more"),
        pytest.param(replace(GOOD, addresses=frozenset()), "other names", id="an address more"),
    ],
)
def test_must_issue(held: Existing | None, reason: str) -> None:
    assert must_issue(WANTED, held, "id", NOW) == reason


def test_an_authority_is_not_bound_to_an_issuer() -> None:
    authority = Certificate("/p/ca", "ca", "/p/ca", "ca")
    assert must_issue(authority, Existing("own", "ca", "", frozenset(), frozenset(), NOW + YEAR), "", NOW) == ""


def test_issuers_come_before_what_they_sign() -> None:
    seen = set()
    for certificate in certificates(CLUSTER):
        assert certificate.usage == "ca" or certificate.issuer in seen
        seen.add(certificate.path)


def test_the_api_server_answers_to_every_name_that_clients_use() -> None:
    serving = next(c for c in certificates(CLUSTER) if c.path.endswith("/pki/apiserver"))
    assert {"kubernetes", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost"} <= set(
        serving.dns
    )
    assert {"10.96.0.1", "127.0.0.1", "10.89.3.1", "10.89.3.11", "10.89.3.12"} <= set(serving.addresses)


def test_each_node_has_its_own_identity() -> None:
    subjects = {(c.common_name, c.organization) for c in certificates(CLUSTER) if c.path.endswith("/kubelet-client")}
    assert subjects == {("system:node:node1", "system:nodes"), ("system:node:node2", "system:nodes")}


def test_every_kubeconfig_has_its_certificate() -> None:
    clients = {c.path for c in certificates(CLUSTER) if c.usage == "client"}
    assert all(config.certificate in clients for config in kubeconfigs(CLUSTER))
