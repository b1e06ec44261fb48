"""The file of a cluster: what it gives, and the line, the field and the remedy of whatever is wrong in it."""

from __future__ import annotations

import pytest

from controlplane.config.model import Custom, Member, Mirror, Mount, Port, Ranges, Registry, Taint, Wanted
from controlplane.config.plan.contradictions import contradictions
from controlplane.config.plan.read import parse, wanted
from nodelib.errors import Invalid

HEAD = "apiVersion: nodewright.io/v1alpha1\nkind: Cluster\n"
WHOLE = """
apiVersion: nodewright.io/v1alpha1
kind: Cluster
name: lab
kubernetes: "1.37"
nodes:
  - name: head
    labels: {tier: front}
  - name: gpu1
    taints: [{key: gpu, value: "yes", effect: NoSchedule}, {key: slow, effect: PreferNoSchedule}]
    cpus: 2
    memory: 4Gi
    mounts: [{hostPath: /srv/data, nodePath: /data, readOnly: true}]
    kubelet: {maxPods: 20}
cpus: 1
memory: 2Gi
kubelet: {evictionHard: {memory.available: 5%}}
agent: nodewright
proxy: upstream
networking: {ipFamily: dual, proxyMode: nftables, routed: true, uplink: false, nodeSubnet: 10.70.0.0/24,
  podSubnet: "10.60.0.0/16,fd00:60::/56", serviceSubnet: "10.61.0.0/20,fd00:61::/112"}
ports: [{hostPort: 8080, nodePort: 30080}, {hostPort: 8080, nodePort: 30081, listenAddress: "::1", node: gpu1}]
apiServer: {args: {v: 2, profiling: true, audit-log-path: /var/log/audit.log}}
controllerManager: {args: {node-monitor-grace-period: 20s}}
scheduler: {args: {v: "4"}}
featureGates: {SomeGate: true, Other: false}
registries:
  - host: docker.io
    mirrors: [{url: "https://mirror.example:5000", caFile: /etc/ca.crt}, {url: "http://10.0.0.1", skipVerify: true}]
    login: {username: me, passwordEnv: SECRET}
addons: [metrics, ingress]
demo: false
durable: true
images: conformance
binaries: /opt/kubernetes
"""


def test_everything_that_a_file_can_say() -> None:
    found = wanted(parse(WHOLE, "lab.yaml").values)
    assert found == Wanted(
        name="lab",
        options={
            "kubernetes": "1.37", "cpus": 1, "memory": 2 << 30, "agent": "nodewright", "proxy": "upstream",
            "ip_family": "dual", "proxy_mode": "nftables", "routed": True, "uplink": False, "nodes": 2,
            "addons": "metrics,ingress", "demo": False, "durable": True,
        },
        members=(
            Member("head", labels={"tier": "front"}),
            Member(
                "gpu1",
                taints=(Taint("gpu", "NoSchedule", "yes"), Taint("slow", "PreferNoSchedule")),
                cpus=2,
                memory=4 << 30,
                mounts=(Mount("/srv/data", "/data", True),),
                kubelet={"maxPods": 20},
            ),
        ),
        custom=Custom(
            ports=(Port(8080, 30080), Port(8080, 30081, "::1", "gpu1")),
            api_server={"v": "2", "profiling": "true", "audit-log-path": "/var/log/audit.log"},
            controller_manager={"node-monitor-grace-period": "20s"},
            scheduler={"v": "4"},
            feature_gates={"SomeGate": True, "Other": False},
            kubelet={"evictionHard": {"memory.available": "5%"}},
            registries=(
                Registry(
                    "docker.io",
                    (Mirror("https://mirror.example:5000", "/etc/ca.crt"), Mirror("http://10.0.0.1", "", True)),
                    "me",
                    "",
                    "SECRET",
                ),
            ),
        ),
        ranges=Ranges("10.70.0.0/24", "10.60.0.0/16,fd00:60::/56", "10.61.0.0/20,fd00:61::/112"),
        images="conformance",
        binaries="/opt/kubernetes",
    )  # fmt: skip
    assert contradictions(found) == []


def test_kubeadm_is_a_table_of_its_own() -> None:
    found = wanted(parse(f"{HEAD}nodes: 3\nkubeadm: {{controlPlanes: 3, network: kindnet}}\n", "x").values)
    assert found.options == {"kubeadm": True, "control_planes": 3, "network": "kindnet", "nodes": 3}
    assert wanted(parse(f"{HEAD}kubeadm: {{}}\n", "x").values).options == {"kubeadm": True}


@pytest.mark.parametrize(
    ("text", "line", "message", "action"),
    [
        pytest.param("nodez: 2\n", 3, "nodez: unknown field", "Write `nodes`.", id="unknown field"),
        pytest.param("xyzzy: 2\n", 3, "xyzzy: unknown field", "Known here: apiVersion", id="unlike any field"),
        pytest.param("nodes: two\n", 3, "nodes: must be a whole number from 1 to 20, not 'two'", "", id="wrong type"),
        pytest.param("nodes: 0\n", 3, "nodes: must be a whole number", "", id="out of range"),
        pytest.param("demo: 'yes'\n", 3, "demo: must be true or false", "without quotes", id="text for a switch"),
        pytest.param("name: -x\n", 3, "name: '-x' is not 1 to 12", "", id="name of the cluster"),
        pytest.param(
            "nodes:\n- name: a\n  labels: {gpu: true}\n", 5, "nodes[0].labels.gpu: must be text", "'true'", id="label"
        ),
        pytest.param("nodes:\n- name: a\n- name: a\n", 5, "nodes[1].name: name 'a' is there", "Remove", id="twice"),
        pytest.param("nodes:\n- labels: {}\n", 4, "nodes[0].name: is missing", "Add `name:`", id="no name"),
        pytest.param("nodes: [{name: pki}]\n", 3, "nodes[0].name: 'pki' is the name of something", "", id="taken"),
        pytest.param(
            "nodes:\n- name: a\n  taints: [{key: x, effect: No}]\n", 5, "taints[0].effect", "NoSchedule", id="effect"
        ),
        pytest.param("nodes:\n- name: a\n  memory: 64Mi\n", 5, "memory: '64Mi' is too little", "4Gi", id="memory"),
        pytest.param(
            "nodes:\n- name: a\n  mounts:\n  - {hostPath: data, nodePath: /x}\n",
            6,
            "hostPath: 'data'",
            "",
            id="relative",
        ),
        pytest.param(
            "nodes:\n- name: a\n  mounts:\n  - {hostPath: /d, nodePath: /bin/x}\n",
            6,
            "needs for itself",
            "",
            id="place",
        ),
        pytest.param(
            "nodes:\n- name: a\n  mounts:\n  - {hostPath: /d, nodePath: /a/../proc}\n", 6, "'..'", "", id="dots"
        ),
        pytest.param("kubelet:\n  maxPodz: 3\n", 4, "kubelet.maxPodz: unknown field", "", id="kubelet's field"),
        pytest.param("kubelet:\n  maxPods: a\n", 4, "kubelet.maxPods: ", "Correct", id="kubelet's value"),
        pytest.param("kubelet:\n  port: 1\n", 4, "is decided by nodewright", "leave it out", id="our own field"),
        pytest.param("apiServer:\n  args:\n    etcd-servers: x\n", 5, "is set by nodewright", "", id="our flag"),
        pytest.param("scheduler:\n  args:\n    --v: 1\n", 5, "without '--'", "", id="dashes"),
        pytest.param("apiServer:\n  args:\n    feature-gates: A=true\n", 5, "featureGates", "", id="gates"),
        pytest.param("featureGates: {A: 1}\n", 3, "featureGates.A: must be true or false", "", id="gate's value"),
        pytest.param("ports: [{hostPort: 80}]\n", 3, "ports[0].nodePort: is missing", "", id="half a port"),
        pytest.param("addons: [dashboard]\n", 3, "addons[0]: 'dashboard'", "ingress, metrics", id="add-on"),
        pytest.param(
            "registries:\n- host: x\n  login: {username: u}\n", 5, "login: needs the place", "passwordFile", id="login"
        ),
        pytest.param(
            "registries:\n- host: x\n  mirrors: [{url: 'http://u:p@h'}]\n", 5, "holds a login", "", id="secret in a URL"
        ),
        pytest.param("networking: {podSubnet: 10.0.0.1/8}\n", 3, "networking.podSubnet", "a CIDR", id="host bits"),
        pytest.param("a: [\n", 3, "not YAML", "", id="not YAML"),
        pytest.param("demo: true\ndemo: false\n", 4, "given twice", "", id="a field twice"),
        pytest.param("demo: !!python/object:os.system x\n", 3, "not plain", "", id="a tag"),
    ],
)
def test_errors_have_line_field_and_remedy(text: str, line: int, message: str, action: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse(HEAD + text, "lab.yaml")
    assert message in caught.value.message and action in caught.value.action
    assert caught.value.obj in (f"lab.yaml, line {line}", f"lab.yaml, line {line + 1}")
    assert caught.value.obj.endswith(f" {line}") or "YAML" in message  # libyaml finds the end a line too late
    assert "nothing was changed" in caught.value.step


def test_all_errors_are_shown_and_not_only_the_first() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        parse(f"{HEAD}demo: 3\nnodes: many\n", "lab.yaml")
    assert len(caught.value.exceptions) == 2
    with pytest.raises(ExceptionGroup) as caught:
        parse(HEAD + "".join(f"x{number}: 1\n" for number in range(40)), "lab.yaml")
    assert len(caught.value.exceptions) == 11 and "30 more" in str(caught.value.exceptions[-1])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("", "holds no mapping", id="empty"),
        pytest.param("- 1\n", "holds no mapping", id="a list"),
        pytest.param("kind: Cluster\n", "Add `apiVersion: nodewright.io/v1alpha1`", id="no version"),
        pytest.param("kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\n", "a file for kind", id="kind's file"),
        pytest.param(HEAD + "---\n" + HEAD, "more than one document", id="two documents"),
        pytest.param("a: &a [x, x]\n" + "b: &b [*a, *a]\n" * 1 + "c: " + "[" * 30, "", id="deep"),
        pytest.param(f"{HEAD}name: {'x' * (1 << 18)}\n", "larger than", id="large"),
        pytest.param(f'{HEAD}name: "\\e[31m"\n', "\\x1b", id="control characters are shown as escapes"),
    ],
)
def test_what_is_no_file_of_a_cluster(text: str, words: str) -> None:
    with pytest.raises((Invalid, ExceptionGroup)) as caught:
        parse(text, "lab.yaml")
    found = caught.value.exceptions if isinstance(caught.value, ExceptionGroup) else [caught.value]
    assert words in " ".join(map(str, found)) and "\x1b" not in str(found)


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        pytest.param(
            "ports: [{hostPort: 80, nodePort: 1}, {hostPort: 80, nodePort: 2, listenAddress: 0.0.0.0}]",
            ("ports", 1, "hostPort"), "used already by ports[0]", id="a port and all addresses",
        ),
        pytest.param(
            "ports: [{hostPort: 80, nodePort: 1}, {hostPort: 80, nodePort: 2, listenAddress: 127.0.0.1}]",
            ("ports", 1, "hostPort"), "used already", id="a port and its default address",
        ),
        pytest.param(
            "nodes: 2\nports: [{hostPort: 80, nodePort: 1, node: node3}]",
            ("ports", 0, "node"), "no node node3", id="node of a port",
        ),
        pytest.param(
            "networking: {podSubnet: 10.60.0.0/16, serviceSubnet: 10.60.8.0/24}",
            ("networking", "serviceSubnet"), "overlaps 10.60.0.0/16 of the pods", id="ranges",
        ),
        pytest.param(
            "networking: {ipFamily: dual, podSubnet: 10.60.0.0/16}",
            ("networking", "podSubnet"), "one IPv4 and one IPv6", id="families",
        ),
        pytest.param(
            "nodes: 3\nnetworking: {podSubnet: 10.60.0.0/23}",
            ("networking", "podSubnet"), "room for 2 nodes", id="room",
        ),
        pytest.param(
            "networking: {serviceSubnet: 10.60.0.0/29}",
            ("networking", "serviceSubnet"), "outside /12 to /27", id="length",
        ),
        pytest.param(
            "nodes: [{name: a, taints: [{key: x, effect: NoExecute}]}]",
            ("nodes",), "no place", id="all nodes tainted",
        ),
        pytest.param("kubeadm: {}\nfeatureGates: {A: true}", ("featureGates",), "kubeadm", id="kubeadm"),
    ],
)  # fmt: skip
def test_what_is_right_by_itself_and_wrong_together(text: str, path: tuple[str | int, ...], words: str) -> None:
    found = contradictions(wanted(parse(HEAD + text, "lab.yaml").values))
    assert [one.path for one in found] == [path]
    assert words in found[0].text and found[0].action


def test_the_same_port_of_two_addresses_is_no_contradiction() -> None:
    text = "ports: [{hostPort: 80, nodePort: 1}, {hostPort: 80, nodePort: 2, listenAddress: 127.0.0.2}]"
    assert contradictions(wanted(parse(HEAD + text, "x").values)) == []
