"""Which clusters `join` trusts, what it finds in them, and what it writes."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest
import yaml

from controlplane.host.model import Addons, Authority
from controlplane.host.plan import join as plan
from controlplane.host.plan import join_trust
from nodelib.errors import Invalid, Permanent

TOKEN = "abcdef.0123456789abcdef"


def url64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def info(secret: str = "0123456789abcdef", text: str = "clusters: []") -> dict[str, Any]:
    """cluster-info as the bootstrapsigner controller signs it."""
    head = url64(b'{"alg":"HS256","kid":"abcdef"}')
    mac = hmac.new(secret.encode(), f"{head}.{url64(text.encode())}".encode(), hashlib.sha256).digest()
    return {"data": {"kubeconfig": text, "jws-kubeconfig-abcdef": f"{head}..{url64(mac)}"}}


def test_a_signed_cluster_is_believed() -> None:
    assert join_trust.check_cluster_info(info(), TOKEN) == "clusters: []"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        pytest.param(info("ffffffffffffffff"), "secret is wrong", id="another secret"),
        pytest.param({"data": {**info()["data"], "kubeconfig": "forged"}}, "secret is wrong", id="forged"),
        pytest.param({"data": {"kubeconfig": "x"}}, "does not know a token abcdef", id="no signature"),
        pytest.param({}, "does not know a token", id="empty"),
        pytest.param({"data": {**info()["data"], "jws-kubeconfig-abcdef": 5}}, "does not know a token", id="no text"),
        pytest.param({"data": {**info()["data"], "jws-kubeconfig-abcdef": "é..é"}}, "secret is wrong", id="no ASCII"),
        pytest.param({"data": "none"}, "does not know a token", id="no object"),
    ],
)
def test_what_is_not_signed_is_refused(given: dict[str, Any], words: str) -> None:
    """Anybody may answer before the signature is checked."""
    join_trust.is_signed(given, "abcdef")
    with pytest.raises(Permanent, match=words):
        join_trust.check_cluster_info(given, TOKEN)


def test_a_token_that_was_just_made_is_signed_a_moment_later() -> None:
    assert join_trust.is_signed(info(), "abcdef")
    assert not join_trust.is_signed(info(), "ghijkl") and not join_trust.is_signed({}, "abcdef")


@pytest.mark.parametrize("text", ["", "abcdef", "ABCDEF.0123456789abcdef", "abcdef.0123456789abcde"])
def test_a_token_has_its_form(text: str) -> None:
    with pytest.raises(Invalid, match="bootstrap token"):
        join_trust.split_token(text)


def test_the_authority_is_pinned() -> None:
    pin, other = (f"sha256:{hashlib.sha256(key).hexdigest()}" for key in (b"key", b"other"))
    found = [Authority(pin, b"mine "), Authority(other, b"not mine")]
    assert join_trust.believed(found, []) == b"mine not mine"
    assert join_trust.believed(found, ["sha256:00", pin.upper().replace("SHA256", "sha256")]) == b"mine "
    with pytest.raises(Permanent, match="was expected"):
        join_trust.believed(found[1:], [pin])


@pytest.mark.parametrize(
    ("names", "network", "proxy"),
    [
        ([], "", ""),
        (["kindnet", "kube-proxy"], "kindnet", "kube-proxy"),
        (["kube-flannel-ds"], "kube-flannel-ds", ""),
        (["node-exporter", "kube-proxy"], "", "kube-proxy"),
    ],
)
def test_daemon_sets_are_recognized(names: list[str], network: str, proxy: str) -> None:
    pods = [{"metadata": {"ownerReferences": [{"kind": "DaemonSet", "name": name}]}} for name in names]
    found = plan.addons(plan.daemon_sets_of([*pods, {"metadata": {}}]))
    assert (found.network, found.proxy) == (network, proxy)


@pytest.mark.parametrize(
    ("asked", "found", "network", "proxy"),
    [
        pytest.param(("auto", "auto"), None, "none", "none", id="nothing known yet"),
        pytest.param(("auto", "auto"), Addons(), "nodewright", "nodewright", id="neither there"),
        pytest.param(("auto", "auto"), Addons("kindnet", ""), "none", "nodewright", id="a network there"),
        pytest.param(("nodewright", "none"), Addons("kindnet", ""), "nodewright", "none", id="asked for"),
    ],
)
def test_ours_run_where_the_cluster_brings_none(
    asked: tuple[str, str], found: Addons | None, network: str, proxy: str
) -> None:
    assert plan.resolve(*asked, found) == (network, proxy)


def granted_to_nodes(text: str) -> tuple[list[dict[str, Any]], set[str]]:
    """The objects, and what those of them that are for nodes allow."""
    objects = json.loads("".join(line for line in text.splitlines() if not line.startswith("#")))["items"]
    roles = {one["roleRef"]["name"] for one in objects if one.get("subjects", [{}])[0].get("name") == "system:nodes"}
    rules = [rule for one in objects if one["metadata"]["name"] in roles for rule in one.get("rules", ())]
    return objects, {f"{verb} {kind}" for rule in rules for verb in rule["verbs"] for kind in rule["resources"]}


def test_rights_for_policies_are_given_only_where_they_are_asked_for() -> None:
    needs = {str(need) for need in plan.permissions("nodewright", "none", policies=True)}
    assert needs == {"list nodes", "list pods", "list networkpolicies"}
    assert needs <= granted_to_nodes(plan.rights_text(policies=True))[1]
    assert "list pods" not in granted_to_nodes(plan.rights_text())[1]


@pytest.mark.parametrize(
    ("network", "found", "problem"),
    [
        ("nodewright", Addons(), ""),
        ("nodewright", Addons("kindnet"), ""),
        ("none", None, ""),
        ("none", Addons("kindnet"), "kindnet"),
        ("none", Addons(), "elsewhere"),
    ],
    ids=["ours", "ours beside another", "not known yet", "another", "none"],
)
def test_policies_go_with_our_pod_network(network: str, found: Addons | None, problem: str) -> None:
    if not problem:
        plan.check_policies(network, found)
        return
    with pytest.raises(Invalid, match=problem):
        plan.check_policies(network, found)


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("clusterDNS: [10.96.0.10, 'fd00::a']", ("10.96.0.10", "fd00::a")),
        ("clusterDNS: 10.96.0.10", ()),
        ("clusterDNS: [1]", ()),
        ("{", ()),
        ("", ()),
    ],
    ids=["two", "no list", "no text", "no YAML", "empty"],
)
def test_the_cluster_s_dns_servers(text: str, servers: tuple[str, ...]) -> None:
    assert plan.dns_servers(text) == servers


def test_rights_printed_cover_what_the_daemons_need() -> None:
    items, granted = granted_to_nodes(plan.rights_text())
    objects = {"items": items}
    assert "list nodes" in granted
    roles = {one["roleRef"]["name"] for one in objects["items"] if one["kind"] == "ClusterRoleBinding"}
    assert "system:node-proxier" in roles  # upstream's: services and endpointslices
    needs = [str(need) for need in plan.permissions("nodewright", "nodewright")]
    assert needs == ["list nodes", "list endpointslices"]
    assert plan.permissions("none", "none") == []


def test_a_ready_node_keeps_its_name() -> None:
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    assert "is Ready" in plan.node_problem(ready, "n1")
    assert plan.node_problem({"status": {}}, "n1") == "" == plan.node_problem(None, "n1")


def test_files_are_what_the_daemons_take() -> None:
    assert yaml.safe_load(plan.drop_in(systemd=False))["cgroupDriver"] == "cgroupfs"
    assert yaml.safe_load(plan.plain_config("10.96.0.10", "cluster.local"))["clusterDNS"] == ["10.96.0.10"]
    assert yaml.safe_load(plan.proxy_config("n1", "10.244.0.0/16", ""))["mode"] == "iptables"


@pytest.mark.parametrize(
    ("given", "path"),
    [
        pytest.param("", "/run/containerd/containerd.sock", id="containerd"),
        pytest.param("unix:///var/run/crio/crio.sock", "/var/run/crio/crio.sock", id="a-url-as-kubeadm-takes-it"),
        pytest.param("/run/crio/crio.sock", "/run/crio/crio.sock", id="a-path"),
    ],
)
def test_leave_finds_the_runtime_that_join_was_given(given: str, path: str) -> None:
    written = plan.drop_in(systemd=True, runtime=plan.runtime_socket(given))
    assert yaml.safe_load(written)["containerRuntimeEndpoint"] == f"unix://{path}"
    assert plan.socket_in(written) == path


@pytest.mark.parametrize("text", ["", "[", "containerRuntimeEndpoint: 7"])
def test_without_a_readable_drop_in_the_runtime_is_containerd(text: str) -> None:
    assert plan.socket_in(text) == "/run/containerd/containerd.sock"


def test_a_runtime_that_is_no_socket_is_refused() -> None:
    with pytest.raises(Invalid, match="--cri-socket crio"):
        plan.runtime_socket("crio")


def test_a_token_made_by_an_admin_may_only_join() -> None:
    made = plan.token_secret("abcdef", "0123456789abcdef", "2026-01-01T00:00:00Z")["stringData"]
    assert made["auth-extra-groups"] == plan.GROUP and "usage-bootstrap-signing" not in made
    rules = [rule for obj in plan.rights() for rule in obj.get("rules", ())]
    assert {verb for rule in rules for verb in rule["verbs"]} == {"get", "list", "watch"}


@pytest.mark.parametrize(
    "status", ["Ready", {"conditions": [1, "x"]}, {"conditions": {"type": "Ready"}}, {"conditions": 5}]
)
def test_a_status_of_other_types_is_no_ready_node(status: Any) -> None:
    """Whoever answers in the place of a node's API server may say anything."""
    assert not plan.node_problem({"status": status}, "n1")


@pytest.mark.parametrize(
    "url", ["10.0.0.5:6443", "http://10.0.0.5:6443", "https://", "https://[::1", "ftp://x", "https://x:99999"]
)
def test_a_token_is_sent_to_an_https_url_only(url: str) -> None:
    """kubeadm's own line names no scheme; over http:// anybody on the way would read the token."""
    with pytest.raises(Invalid, match="no https URL"):
        join_trust.check_server(url)


@pytest.mark.parametrize("url", ["https://10.0.0.5:6443", "https://[::1]:6443", "https://cluster.example/path/"])
def test_an_https_url_is_a_server(url: str) -> None:
    join_trust.check_server(url)


def test_what_the_daemons_left_in_the_kernel_is_removed_by_them() -> None:
    """`leave` said that the machine is no node any more, and Services went on to pods of the cluster."""
    agent = ("/py", "-m", "cli.node_main", "--config=/c", "--pod-network=nodewright", "--v=2")
    cleanup = ("/py", "-m", "cli.node_main", "--config=/c", "--pod-network=cleanup", "--v=2")
    programs = {"containerd": ("/containerd",), "agent": agent, "proxy": ("/py", "-m", "proxy", "--config=/p")}
    assert plan.cleanups(programs) == [("/py", "-m", "proxy", "--cleanup"), cleanup]
    assert plan.cleanups({"policy": ("/py", "-m", "policy")}) == [("/py", "-m", "policy", "--cleanup")]
    others = ("/py", "-m", "cli.node_main", "--pod-network=none")
    assert plan.cleanups({"agent": others}) == [], "the cluster's own network and rules are not ours"
    assert plan.cleanups({}) == []
