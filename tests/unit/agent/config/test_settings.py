"""Command line and files become Settings: upstream's precedence, safer defaults, errors that name their place."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from agent.build.standalone import adapted
from agent.common.model.durations import seconds
from agent.config.decode import decode, flatten
from agent.config.flags import FIELD_FLAGS, INERT_FLAGS, OWN_FLAGS
from agent.config.parse import parse
from agent.config.schema import FIELDS
from agent.settings import Settings, TracingSettings
from nodelib.ciphers import STRONG_CIPHERS
from nodelib.errors import Invalid
from nodelib.upstream.answers import facts

HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def parsed(folder: Path, text: str, *argv: str) -> Settings:
    file = folder / "config.yaml"
    file.write_text(HEAD + text)
    return parse([f"--config={file}", *argv], hostname="Node-1")


def refusal(folder: Path, text: str, *argv: str) -> str:
    with pytest.raises(Invalid) as caught:
        parsed(folder, text, *argv)
    return str(caught.value)


def test_defaults_are_safe_without_a_file() -> None:
    found = parse([], hostname="Node-1")
    assert found.node.name == "node-1"
    assert (found.server.auth.anonymous, found.server.auth.webhook, found.server.auth.mode) == (False, True, "Webhook")
    assert found.server.read_only_port == 0
    assert found.pod_defaults.seccomp_default and found.cgroups.pods.pids == 4096 and not found.cgroups.pods.fail_v1
    assert found.notices == ()
    assert found.eviction.hard["memory.available"] == "100Mi"
    assert found.images.parallel_pulls == 1
    assert found.runtime.endpoint == "/run/containerd/containerd.sock"
    assert found.api.kubeconfig == ""


def test_what_kubeadm_writes_is_accepted_without_a_notice(folder: Path) -> None:
    text = """
authentication:
  anonymous: {enabled: false}
  webhook: {cacheTTL: 0s, enabled: true}
  x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}
authorization:
  mode: Webhook
  webhook: {cacheAuthorizedTTL: 0s, cacheUnauthorizedTTL: 0s}
cgroupDriver: systemd
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
containerRuntimeEndpoint: ""
cpuManagerReconcilePeriod: 0s
crashLoopBackOff: {}
evictionPressureTransitionPeriod: 0s
fileCheckFrequency: 0s
healthzBindAddress: 127.0.0.1
healthzPort: 10248
httpCheckFrequency: 0s
imageMaximumGCAge: 0s
imageMinimumGCAge: 0s
logging:
  flushFrequency: 0
  options: {json: {infoBufferSize: "0"}, text: {infoBufferSize: "0"}}
  verbosity: 0
memorySwap: {}
nodeStatusReportFrequency: 0s
nodeStatusUpdateFrequency: 0s
runtimeRequestTimeout: 0s
shutdownGracePeriod: 0s
shutdownGracePeriodCriticalPods: 0s
staticPodPath: /etc/kubernetes/manifests
streamingConnectionIdleTimeout: 0s
syncFrequency: 0s
volumeStatsAggPeriod: 0s
"""
    found = parsed(folder, text)
    assert found.cgroups.pods.driver == "systemd" and found.pod_defaults.cluster_dns == ("10.96.0.10",)
    assert found.status.update_frequency == 10.0 and found.status.report_frequency == 300.0
    assert found.server.streaming_idle_timeout == 14400.0
    assert found.static.path == "/etc/kubernetes/manifests" and found.static.file_frequency == 20.0
    assert not found.notices


def test_every_field_and_flag_of_upstream_is_known() -> None:
    upstream = facts("kubelet")
    assert {one["path"] for one in upstream["fields"]} == set(FIELDS)
    known = {*FIELD_FLAGS, *OWN_FLAGS, *INERT_FLAGS, "version"}
    assert {one["name"] for one in upstream["flags"]} == known


@pytest.mark.parametrize(
    ("argv", "expect"),
    [
        pytest.param(["--max-pods=7"], 7, id="flag over file"),
        pytest.param(["--max-pods", "8"], 8, id="flag and value apart"),
        pytest.param(["--max_pods=9"], 9, id="underscore"),
        pytest.param([], 5, id="file"),
    ],
)
def test_flags_win_over_the_file(folder: Path, argv: list[str], expect: int) -> None:
    assert parsed(folder, "maxPods: 5\n", *argv).node_policy.max_pods == expect


def test_drop_ins_are_merged_in_lexical_order(folder: Path) -> None:
    drop = folder / "d"
    (drop / "sub").mkdir(parents=True)
    (drop / "10-a.conf").write_text(HEAD + "maxPods: 6\nevictionHard: {pid.available: 5%}\nclusterDNS: [10.0.0.1]\n")
    (drop / "20-b.conf").write_text(HEAD + "maxPods: 7\n")
    (drop / "sub" / "x.conf").write_text(HEAD + "evictionHard: {memory.available: null}\n")
    (drop / "ignored.yaml").write_text("nonsense: [")
    text = "maxPods: 5\nclusterDNS: [10.9.9.9]\nevictionHard: {memory.available: 50Mi}\n"
    found = parsed(folder, text, f"--config-dir={drop}")
    assert found.node_policy.max_pods == 7
    assert found.pod_defaults.cluster_dns == ("10.0.0.1",)
    assert found.eviction.hard == {"pid.available": "5%"}


@pytest.mark.parametrize(
    "text",
    [
        "runtimeRequestTimeout: 2m0s\n",
        "makeIPTablesUtilChains: false\n",
        "enableProfilingHandler: false\n",
        "tracing: {}\n",
    ],
)
def test_what_makes_no_difference_gives_no_notice(folder: Path, text: str) -> None:
    assert parsed(folder, text).notices == ()


def test_tracing_is_off_without_a_rate(folder: Path) -> None:
    assert parsed(folder, "tracing: {endpoint: 'c:4317'}\n").tracing == TracingSettings("c:4317", 0)
    found = parsed(folder, "tracing: {samplingRatePerMillion: 5}\n")
    assert (found.tracing, found.notices) == (TracingSettings("", 5), ())


def test_a_bootstrap_needs_a_place_for_its_kubeconfig(folder: Path) -> None:
    with pytest.raises(Invalid, match="--kubeconfig"):
        parse(["--bootstrap-kubeconfig=/b"], hostname="n")
    api = parsed(folder, "rotateCertificates: true\n", "--kubeconfig=/k", "--bootstrap-kubeconfig=/b").api
    assert (api.kubeconfig, api.bootstrap, api.rotate) == ("/k", "/b", True)


def test_feature_gates_of_file_and_flags_are_merged_and_noticed(folder: Path) -> None:
    text = "featureGates: {QOSReserved: true, PodsAPI: true}\n"
    found = parsed(folder, text, "--feature-gates=PodsAPI=false,H2CContainerProbe=true")
    assert found.effective["featureGates"] == {"QOSReserved": True, "PodsAPI": False, "H2CContainerProbe": True}
    said = "featureGates.QOSReserved has no effect here: memory requests are not reserved at the QoS level"
    assert said in found.notices


@pytest.mark.parametrize(
    ("text", "argv", "part"),
    [
        pytest.param("qosReserved: {memory: 50%}\n", [], "qosReserved is not supported", id="field"),
        pytest.param("", ["--cloud-provider=external"], "--cloud-provider is accepted without effect", id="flag"),
        pytest.param("volumeStatsAggPeriod: 30s\n", [], "volumeStatsAggPeriod is not supported", id="duration"),
    ],
)
def test_what_is_not_done_gives_a_notice(folder: Path, text: str, argv: list[str], part: str) -> None:
    assert any(part in line for line in parsed(folder, text, *argv).notices)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        pytest.param("portt: 1\n", ["line 3", "portt: unknown field; did you mean port?"], id="unknown"),
        pytest.param("a: 1\nport: 1\n", ["line 3", "a: unknown field"], id="unknown, nothing near"),
        pytest.param("port: '1'\n", ["line 3", "port: must be a whole number"], id="string for number"),
        pytest.param("clusterDomain: 5\n", ["must be a string", "put it in quotes"], id="number for string"),
        pytest.param("enableServer: 'yes'\n", ["must be true or false"], id="string for boolean"),
        pytest.param("syncFrequency: 10\n", ["must be a string"], id="number for duration"),
        pytest.param("syncFrequency: 10 s\n", ["is not a duration"], id="bad duration"),
        pytest.param("clusterDNS: 10.0.0.1\n", ["must be a list"], id="string for list"),
        pytest.param("clusterDNS: [1]\n", ["clusterDNS[0]", "must be a string"], id="in a list"),
        pytest.param(
            "authentication:\n  x509: 5\n", ["line 4", "authentication.x509: must be a mapping"], id="section"
        ),
        pytest.param("authentication:\n  webhok: {}\n", ["line 4", "unknown field; did you mean"], id="nested unknown"),
        pytest.param("port: 1\nport: 2\n", ["line 4", "given twice"], id="twice"),
        pytest.param("port: [\n", ["not YAML"], id="no YAML"),
        pytest.param("kubeReserved: {cpu: lots}\n", ["kubeReserved.cpu", "not a quantity"], id="quantity"),
        pytest.param("registerWithTaints: [{key: a}]\n", ["registerWithTaints[0].effect: is required"], id="taint"),
        pytest.param("port: 99999999999\n", ["out of range"], id="int32"),
    ],
)
def test_a_malformed_file_is_refused_with_its_place(folder: Path, text: str, parts: list[str]) -> None:
    said = refusal(folder, text)
    assert "config.yaml" in said and "start the agent again" in said
    for part in parts:
        assert part in said


@pytest.mark.parametrize(
    ("text", "part"),
    [
        pytest.param("maxPods: -1\n", "maxPods: -1 must not be negative", id="negative"),
        pytest.param(
            "tracing: {samplingRatePerMillion: 1000001}\n",
            "tracing.samplingRatePerMillion: 1000001 must be between 0 and 1000000",
            id="sampling rate",
        ),
        pytest.param("tracing: {endpoint: ftp://c}\n", "ftp://c: unsupported scheme ftp", id="endpoint"),
        pytest.param("readOnlyPort: 70000\n", "readOnlyPort: 70000 must be between 0 and 65535", id="port"),
        pytest.param("imageGCLowThresholdPercent: 90\n", "must be less than imageGCHighThresholdPercent", id="gc"),
        pytest.param("cpuCFSQuotaPeriod: 2s\n", "between 1ms and 1s", id="quota period"),
        pytest.param("enforceNodeAllocatable: [foo]\n", "'foo' is not one of", id="enforce"),
        pytest.param("enforceNodeAllocatable: [pods, pods]\n", "given twice", id="enforce twice"),
        pytest.param("enforceNodeAllocatable: [kube-reserved]\n", "needs kubeReservedCgroup", id="enforce kube"),
        pytest.param("enforceNodeAllocatable: [none, pods]\n", "none cannot be combined with others", id="none"),
        pytest.param("cgroupsPerQOS: false\n", "pods needs cgroupsPerQOS: true", id="per qos"),
        pytest.param("cgroupRoot: a/b\n", "absolute path", id="cgroup root"),
        pytest.param("evictionHard: {foo.available: 1Mi}\n", "unknown signal", id="signal"),
        pytest.param("evictionHard: {memory.available: 120%}\n", "more than 100%", id="percentage"),
        pytest.param("evictionSoft: {memory.available: 1Gi}\n", "needs its evictionSoftGracePeriod", id="soft"),
        pytest.param("containerRuntimeEndpoint: tcp://1.2.3.4\n", "is not a unix socket", id="endpoint"),
        pytest.param("tlsCertFile: /x\n", "needs tlsPrivateKeyFile", id="tls"),
        pytest.param("clusterDNS: [dns.example]\n", "is not an IP address", id="dns"),
        pytest.param(
            "maxParallelImagePulls: 5\nserializeImagePulls: true\n", "serializeImagePulls is false", id="pulls"
        ),
        pytest.param("containerLogMaxFiles: 1\n", "between 2 and", id="log files"),
        pytest.param("podLogsDir: logs\n", "absolute, normalized", id="log dir"),
        pytest.param("runOnce: true\n", "does not exist any more", id="run once"),
        pytest.param("userNamespaces: {idsPerPod: 1000}\n", "multiple of 65536", id="ids"),
    ],
)
def test_values_that_contradict_are_refused(folder: Path, text: str, part: str) -> None:
    said = refusal(folder, text)
    assert part in said and "line " in said


def test_all_contradictions_are_reported_at_once(folder: Path) -> None:
    said = refusal(folder, "maxPods: -1\nreadOnlyPort: 70000\n")
    assert "maxPods" in said and "readOnlyPort" in said and "line 3" in said and "line 4" in said


@pytest.mark.parametrize(
    ("argv", "part"),
    [
        pytest.param(["--nonsense"], "unrecognized arguments: --nonsense", id="unknown"),
        pytest.param(["word"], "unrecognized arguments: word", id="stray word"),
        pytest.param(["--port=x"], "--port", id="number"),
        pytest.param(["--register-node=maybe"], "neither true nor false", id="boolean"),
        pytest.param(["--config=/nowhere"], "/nowhere", id="no file"),
        pytest.param(["--config-dir=/nowhere"], "is not a folder", id="no folder"),
        pytest.param(["--node-labels=a"], "must be of the form key=value", id="label form"),
        pytest.param(["--node-labels=kubernetes.io/role=x"], "may set only", id="label namespace"),
        pytest.param(["--node-labels=a b=c"], "is not a label key", id="label key"),
        pytest.param(["--hostname-override=Under_score"], "not a DNS subdomain", id="name"),
        pytest.param(["--node-ip=127.0.0.1"], "nobody else reaches it", id="loopback"),
        pytest.param(["--node-ip=10.0.0.1,10.0.0.2"], "one address per family", id="two of a family"),
        pytest.param(["--register-with-taints=a"], "key=value:effect", id="taint"),
        pytest.param(["--register-with-taints=a:Never"], "is not a taint effect", id="taint effect"),
        pytest.param(["--exit-on-lock-contention"], "needs --lock-file", id="contention for no file"),
    ],
)
def test_bad_flags_are_refused(argv: list[str], part: str) -> None:
    with pytest.raises(Invalid, match=re.escape(part)):
        parse(argv, hostname="n")


def test_flags_that_have_no_field() -> None:
    argv = "--kubeconfig /k --node-ip 10.0.0.1,fd00::1 --node-labels a=b,node.kubernetes.io/x=y --lock-file /l"
    found = parse(argv.split(), hostname="n")
    assert found.api.kubeconfig == "/k"
    assert found.node.ips == ("10.0.0.1", "fd00::1")
    assert found.node_policy.labels == {"a": "b", "node.kubernetes.io/x": "y"}
    assert (found.process.lock_file, found.process.exit_on_lock_contention) == ("/l", False)


def test_taints_and_thresholds_on_the_command_line() -> None:
    found = parse(
        ["--register-with-taints=a=b:NoSchedule,c:NoExecute", "--eviction-hard=memory.available<1Gi"], hostname="n"
    )
    assert found.node_policy.taints == (
        {"key": "a", "effect": "NoSchedule", "value": "b"},
        {"key": "c", "effect": "NoExecute"},
    )
    assert found.eviction.hard == {"memory.available": "1Gi"}


def test_version_prints_the_kubernetes_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(["--version"])
    assert ended.value.code == 0 and capsys.readouterr().out == "Kubernetes v1.37.1\n"


def test_the_effective_configuration_reads_back(folder: Path) -> None:
    found = parsed(folder, "maxPods: 5\nauthentication: {webhook: {cacheTTL: 1m}}\n")
    again = folder / "again.yaml"
    again.write_text(yaml.safe_dump(found.effective))
    assert parse([f"--config={again}"], hostname="Node-1").effective == found.effective


@pytest.mark.parametrize(
    ("text", "expect"),
    [
        ("0", 0.0),
        ("0s", 0.0),
        ("300ms", 0.3),
        ("1h30m", 5400.0),
        ("1.5h", 5400.0),
        (".5s", 0.5),
        ("-10s", -10.0),
        ("2us", 2e-6),
        ("2µs", 2e-6),
    ],
)
def test_durations_are_gos(text: str, expect: float) -> None:
    assert seconds(text) == pytest.approx(expect)


@pytest.mark.parametrize("text", ["", "10", "s", "10 s", "1h 30m", "ten", "1e3s", "--1s", "٣s", "9999999999999999h"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        seconds(text)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a: &a [x]\n" + "".join(f"b{i}: [{'*a, ' * 200}]\n" for i in range(400)), id="aliases"),
        pytest.param("a: " + "[" * 500 + "]" * 500, id="deep"),
        pytest.param("? [a]\n: b\n", id="key is a list"),
        pytest.param("a: &a\n  b: *a\n", id="recursive"),
        pytest.param("a: !!python/object:os.system x\n", id="tag"),
        pytest.param("\x00", id="zero byte"),
        pytest.param("port: 0b2", id="odd number"),
        pytest.param("port: 1:30", id="sexagesimal"),
        pytest.param("memoryThrottlingFactor: .inf", id="infinity"),
    ],
)
def test_hostile_files_are_refused(text: str) -> None:
    with pytest.raises(Invalid):
        decode(HEAD + text, "f")


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_SECTIONS = st.sampled_from(sorted({path.split(".")[0] for path in FIELDS}))


def test_a_field_that_is_not_obeyed_gives_a_notice(folder: Path) -> None:
    found = parsed(folder, "volumePluginDir: /opt/flex\n")
    assert [line for line in found.notices if line.startswith("volumePluginDir is not supported")]


@hypothesis_settings(max_examples=150, deadline=None)
@given(st.dictionaries(_SECTIONS | st.text(max_size=8), _VALUES, max_size=5))
def test_any_document_is_accepted_or_refused_never_a_traceback(tmp: dict[str, Any]) -> None:
    text = yaml.safe_dump({"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", **tmp})
    try:
        flatten(decode(text, "f"))
    except Invalid as error:
        assert error.obj.startswith("f")


@hypothesis_settings(max_examples=150, deadline=None)
@given(st.text(max_size=200))
def test_any_text_is_accepted_or_refused(text: str) -> None:
    try:
        decode(HEAD + text, "f")
    except Invalid as error:
        assert "f" in error.obj


@hypothesis_settings(max_examples=150, deadline=None)
@given(st.lists(st.text(max_size=12).map(lambda text: f"--{text}") | st.text(max_size=8), max_size=4))
def test_any_command_line_is_accepted_or_refused(argv: list[str]) -> None:
    try:
        assert isinstance(parse(argv, hostname="n"), Settings)
    except Invalid as error:
        assert error.message and (error.obj or error.step)
    except SystemExit as end:
        assert end.code in (None, 0), "--help and --version alone end the program"


@pytest.mark.parametrize(
    ("argv", "cause"),
    [
        ((), "no source of static pods"),
        (("--pod-manifest-path=/m", "--anonymous-auth"), "needs an API server"),
    ],
    ids=["nothing to run", "everybody by accident"],
)
def test_what_an_agent_without_an_api_server_refuses(argv: tuple[str, ...], cause: str) -> None:
    with pytest.raises(Invalid, match=cause):
        adapted(parse(list(argv), hostname="n"))


def test_without_an_api_server_only_certificates_identify_users() -> None:
    found = adapted(parse(["--pod-manifest-path=/m"], hostname="n"))
    assert (found.server.auth.webhook, found.server.auth.mode) == (False, "AlwaysAllow")
    assert "standalone" in found.notices[-2] and "client certificate" in found.notices[-1]
    given = ["--pod-manifest-path=/m", "--kubeconfig=/k"]
    assert adapted(parse(given, hostname="n")) == parse(given, hostname="n")


def test_the_ciphers_are_strong_unless_others_are_named(folder: Path) -> None:
    """CIS 4.2.12 asks for the list in the running configuration; an empty one is the default, as upstream."""
    for text in ("", "tlsCipherSuites: []\n"):
        found = parsed(folder, text)
        assert found.effective["tlsCipherSuites"] == list(found.server.tls_cipher_suites) == list(STRONG_CIPHERS)
    assert parsed(folder, "tlsCipherSuites: [TLS_RSA_WITH_AES_128_GCM_SHA256]\n").server.tls_cipher_suites == (
        "TLS_RSA_WITH_AES_128_GCM_SHA256",
    )


def test_events_and_kernel_defaults_are_obeyed(folder: Path) -> None:
    found = parsed(folder, "eventRecordQPS: 7\neventBurst: 9\nprotectKernelDefaults: true\n")
    assert (found.events.qps, found.events.burst, found.process.protect_kernel_defaults) == (7, 9, True)
    assert found.notices == ()
