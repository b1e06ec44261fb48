"""Command lines of the daemons, objects that `up` applies, rules of the uplink."""

from __future__ import annotations

import pytest

from controlplane.cluster.model import Cluster, Options
from controlplane.cluster.plan import components, manifests, uplink
from controlplane.cluster.plan.components import Tools

ALL = {name: f"/bin/{name}" for name in (*components.needed(Options(agent="upstream", proxy="upstream")), "x")}
TOOLS = Tools(ALL, "/venv/python", "/project")


def cluster(**options: object) -> Cluster:
    return Cluster("lab", "10.89.3.0/24", Options(**options))  # type: ignore[arg-type]


def test_durable_is_what_keeps_fsync() -> None:
    assert "--unsafe-no-fsync=true" in components.etcd_flags(cluster())
    assert "--unsafe-no-fsync=true" not in components.etcd_flags(cluster(durable=True))


def test_the_api_server_is_set_up_as_the_suite_and_the_nodes_need_it() -> None:
    flags = components.api_server_flags(cluster())
    for flag in (
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--enable-bootstrap-token-auth=true",
        "--enable-aggregator-routing=true",
        "--kubelet-preferred-address-types=InternalIP",
        "--etcd-compaction-interval=30s",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
    ):
        assert flag in flags
    assert any(flag.startswith("--encryption-provider-config=") for flag in flags)
    assert not any(flag.startswith("--audit") for flag in flags)


@pytest.mark.parametrize(("agent", "first"), [("nodewright", "/venv/python"), ("upstream", "/bin/kubelet")])
def test_whose_agent(agent: str, first: str) -> None:
    made = cluster(agent=agent)
    program = components.agent(made, made.nodes[0], TOOLS)
    assert program.argv[0] == first
    assert not any("hostname-override" in flag for flag in program.argv)  # CIS 4.2.7: it is the node's own name


@pytest.mark.parametrize(("proxy", "first"), [("nodewright", "/venv/python"), ("upstream", "/bin/kube-proxy")])
def test_whose_proxy(proxy: str, first: str) -> None:
    made = cluster(proxy=proxy)
    assert components.proxy(made, made.nodes[0], TOOLS).argv[0] == first


def test_only_the_peer_needs_its_binaries() -> None:
    assert "kubelet" not in components.needed(Options())
    assert {"kubelet", "kube-proxy"} <= set(components.needed(Options(agent="upstream", proxy="upstream")))


def test_nodes_may_renew_their_own_certificates() -> None:
    """Without it their requests would wait for an approval (kubeadm binds the same role)."""
    role = "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient"
    bound = [one for one in manifests.rights() if (one.get("roleRef") or {}).get("name") == role]
    assert [one["subjects"][0]["name"] for one in bound] == ["system:nodes"]


def test_every_object_has_a_path() -> None:
    made = cluster()
    objects = [*manifests.rights(), *manifests.dns_base(made, ()), manifests.dns_deployment(), *manifests.demo_base()]
    paths = [manifests.path_of(obj) for obj in [*objects, manifests.demo_deployment(made)]]
    assert "/apis/apps/v1/namespaces/default/deployments/demo" in paths
    assert "/api/v1/namespaces/kube-system/services/kube-dns" in paths
    assert len(set(paths)) == len(paths)


def test_names_outside_are_forwarded_to_the_servers_that_there_are() -> None:
    assert "    forward . 9.9.9.9 2620:fe::9 {\n" in manifests.corefile(cluster(), ["9.9.9.9", "2620:fe::9"])
    assert manifests.corefile(cluster(), [f"10.0.0.{number}" for number in range(30)]).count("10.0.0.") == 15


def test_without_a_server_coredns_forwards_nothing_or_it_would_exit() -> None:
    assert "forward" not in manifests.corefile(cluster(), ())


def test_the_demo_has_a_pod_for_every_node() -> None:
    assert manifests.demo_deployment(cluster(nodes=3))["spec"]["replicas"] == 3
    assert manifests.demo_deployment(cluster(nodes=1))["spec"]["replicas"] == 2


def test_down_finds_only_the_rules_of_its_cluster() -> None:
    saved = "\n".join(
        [
            "-P FORWARD ACCEPT",
            "-A FORWARD -i nw-lab ! -o nw-lab -m comment --comment nodewright:lab -j ACCEPT",
            '-A FORWARD -i nw-lab -m comment --comment "nodewright:lab" -j ACCEPT',
            "-A FORWARD -i nw-lab2 ! -o nw-lab2 -m comment --comment nodewright:lab2 -j ACCEPT",
            "-A FORWARD -j ACCEPT",
        ]
    )
    assert uplink.owned(saved, "lab") == saved.splitlines()[1:3]


def test_every_uplink_rule_carries_its_owner() -> None:
    for rule in uplink.rules(cluster()):
        assert "nodewright:lab" in rule.arguments


def test_shims_find_our_runc_also_for_containers_without_a_kubelet() -> None:
    """They inherit containerd's PATH; `ctr run` knows nothing of the path in containerd's configuration."""
    made = cluster()
    places = {"containerd": "/cache/cluster/containerd", "runc": "/cache/runc/runc"}
    program = components.runtime(made, made.nodes[0], Tools(places, "/venv/python", "/project"))
    first, second, *rest = program.env["PATH"].split(":")
    assert (first, second) == ("/cache/cluster", "/cache/runc") and "/usr/bin" in rest
