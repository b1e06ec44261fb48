"""Manifests to pods: what is filled in, what is refused and how that is said."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.common.model import labels
from agent.static.plan.manifest import Manifest, Origin, decode
from nodelib.errors import Invalid

NOW = "2026-11-21T12:00:00Z"
FILE = Origin("file", "/etc/kubernetes/manifests/web.yaml", "Node-1")
URL = Origin("http", "http://config.example/pods", "node-1")

WEB = """
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - {name: main, image: "busybox:1.36"}
"""


def decoded(text: str, origin: Origin = FILE) -> Manifest:
    return decode(text.encode(), origin, NOW)


def test_a_pod_is_named_after_the_node_and_knows_where_it_is_from() -> None:
    (pod,) = decoded(WEB).pods
    assert (pod.name, pod.namespace, pod.source) == ("web-node-1", "default", "file")
    assert pod.spec["nodeName"] == "Node-1"
    notes = pod.meta["annotations"]
    assert notes[labels.CONFIG_HASH] == pod.uid
    assert notes[labels.CONFIG_SOURCE] == "file"
    assert notes[labels.CONFIG_SEEN] == NOW
    assert pod.spec["tolerations"] == [{"operator": "Exists", "effect": "NoExecute"}]


def test_the_uid_is_the_content_not_the_way_it_is_written() -> None:
    (first,) = decoded(WEB).pods
    (same,) = decoded("# a comment\n" + json.dumps(yaml.safe_load(WEB))).pods
    (other,) = decoded(WEB.replace("1.36", "1.37")).pods
    (elsewhere,) = decode(WEB.encode(), Origin("file", "/other.yaml", "node-1"), NOW).pods
    (chosen,) = decoded(WEB.replace("name: web", "name: web, uid: abc-1")).pods
    assert first.uid == same.uid
    assert len({first.uid, other.uid, elsewhere.uid}) == 3
    assert chosen.uid == "abc-1"


def test_a_manifest_copied_from_the_api_is_another_pod() -> None:
    """Its UID was that of a pod that may run on the node: each change of one of them ended the other."""
    uid = "0b5c5f5e-1111-4222-8333-123456789abc"
    found = decoded(WEB.replace("name: web", f"name: web, uid: {uid}"))
    assert found.pods[0].uid not in (uid, decoded(WEB).pods[0].uid)
    assert uid in found.warnings[0]


def test_what_the_api_server_would_default_is_defaulted() -> None:
    text = WEB.replace(
        'image: "busybox:1.36"',
        "image: busybox, ports: [{containerPort: 80}], livenessProbe: {httpGet: {port: 80}}, "
        "resources: {limits: {cpu: 1}}",
    )
    (pod,) = decoded(text.replace("spec:", "spec:\n  hostNetwork: true\n  volumes: [{name: v}]")).pods
    (_, container) = next(pod.containers())
    assert pod.spec["dnsPolicy"] == "ClusterFirst"
    assert pod.spec["restartPolicy"] == "Always"
    assert pod.spec["terminationGracePeriodSeconds"] == 30
    assert pod.spec["volumes"] == [{"name": "v", "emptyDir": {}}]
    assert container["imagePullPolicy"] == "Always"
    assert container["ports"] == [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]
    assert container["resources"] == {"limits": {"cpu": 1}, "requests": {"cpu": 1}}
    assert container["livenessProbe"]["periodSeconds"] == 10
    assert container["livenessProbe"]["httpGet"] == {"port": 80, "path": "/", "scheme": "HTTP"}


def test_zero_that_means_something_stays() -> None:
    (pod,) = decoded(
        WEB.replace("spec:", "spec:\n  terminationGracePeriodSeconds: 0\n  enableServiceLinks: false")
    ).pods
    assert pod.spec["terminationGracePeriodSeconds"] == 0
    assert pod.spec["enableServiceLinks"] is False


def test_text_that_looks_like_something_else_stays_text() -> None:
    (pod,) = decoded(WEB.replace('"busybox:1.36"', "b, args: [12:30, 2026-01-02]")).pods
    assert next(pod.containers())[1]["args"] == ["12:30", "2026-01-02"]


def test_only_the_first_document_of_a_file_is_read_and_that_is_said() -> None:
    found = decoded(WEB + "---" + WEB.replace("name: web", "name: second"))
    assert [pod.name for pod in found.pods] == ["web-node-1"]
    assert "2 documents" in found.warnings[0]


def test_a_url_may_answer_a_list() -> None:
    one = yaml.safe_load(WEB)
    two = yaml.safe_load(WEB.replace("name: web", "name: two"))
    text = json.dumps({"apiVersion": "v1", "kind": "PodList", "items": [one, two]})
    assert [pod.name for pod in decoded(text, URL).pods] == ["web-node-1", "two-node-1"]
    assert "tolerations" not in decoded(text, URL).pods[0].spec
    with pytest.raises(Invalid, match="one v1 Pod"):
        decoded(text)


_MERGES = "a0: &a0 {k0: 1}\n" + "".join(
    f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}], k{n}: 1}}\n" for n in range(1, 10)
)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        pytest.param("", "empty", id="empty"),
        pytest.param("a: [", "line 1: not YAML", id="half-written"),
        pytest.param("just text", "must be a mapping", id="text"),
        pytest.param("kind: Pod\napiVersion: v2", "'v2' 'Pod'", id="version"),
        pytest.param(WEB.replace("name: web", "labels: {}"), "metadata.name: is required", id="no-name"),
        pytest.param(WEB.replace("name: main", "name: 7"), r"containers\[0\].name: must be a string", id="type"),
        pytest.param(WEB.replace("name: main", "name: ../x"), "not a valid name", id="path-as-name"),
        pytest.param(WEB.replace("name: web", "name: web, uid: ../../etc"), "metadata.uid", id="path-as-uid"),
        pytest.param(WEB.replace("spec:", "spec:\n  restartPolicy: Maybe"), "'Maybe' is not one of", id="enum"),
        pytest.param(
            WEB.replace("spec:", "spec:\n  hostUsers: false\n  hostPID: true"), "spec.hostPID: is forbidden", id="users"
        ),
        pytest.param(
            WEB.replace("spec:", "spec:\n  serviceAccountName: me"), "may not reference serviceaccounts", id="sa"
        ),
        pytest.param(
            WEB.replace("spec:", "spec:\n  volumes: [{name: v, configMap: {name: c}}]"),
            "may not reference configmaps",
            id="config-map",
        ),
        pytest.param(
            WEB.replace("image:", "volumeMounts: [{name: v, mountPath: /v}], image:"), "no volume", id="mount"
        ),
        pytest.param(
            WEB.replace("image:", "resources: {limits: {cpu: much}}, image:"), "not a quantity", id="quantity"
        ),
        pytest.param("a: &a [*a]", "too deep", id="endless-alias"),
        pytest.param("[" * 200_000, "too deep", id="brackets"),
        pytest.param("a: &a {<<: *a}", "too deep", id="endless-merge"),
        pytest.param(_MERGES, "too large", id="merge-bomb"),
        pytest.param("[" + "0," * 600_000 + "]", "too large", id="many-values"),
        pytest.param("a: " + "9" * 5000, "number of 5000 characters", id="digits"),
        pytest.param(WEB.replace("name: main", "name: main, tty: .nan"), "nan has no place", id="nan"),
    ],
)
def test_a_bad_manifest_is_refused_by_name_and_cause(text: str, cause: str) -> None:
    with pytest.raises(Invalid, match=cause) as refused:
        decoded(text)
    assert FILE.place in str(refused.value)


@pytest.mark.parametrize(
    ("given_fields", "warned"),
    [
        ("priority: 2000001000, priorityClassName: system-node-critical", False),
        ("priorityClassName: system-node-critical", True),
        ("priority: 5", True),
    ],
)
def test_a_priority_that_its_mirror_pod_cannot_have_is_warned_of(given_fields: str, warned: bool) -> None:
    lines = "\n  ".join(["spec:", *given_fields.split(", ")])
    assert bool(decoded(WEB.replace("spec:", lines)).warnings) is warned


_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 70000) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=5,
)
_fields = st.sampled_from(
    ["name", "image", "ports", "env", "volumeMounts", "resources", "livenessProbe", "lifecycle", "securityContext"]
)


@settings(max_examples=150, deadline=None)
@given(
    container=st.dictionaries(_fields, _values, max_size=3),
    spec=st.dictionaries(
        st.sampled_from(["volumes", "initContainers", "securityContext", "tolerations", "resources"]),
        _values,
        max_size=2,
    ),
)
def test_any_manifest_is_either_understood_or_refused(container: dict, spec: dict) -> None:  # type: ignore[type-arg]
    pod = yaml.safe_load(WEB)
    pod["spec"]["containers"][0].update(container)
    pod["spec"].update(spec)
    try:
        decoded(json.dumps(pod))
    except Invalid as error:
        assert FILE.place in str(error)
