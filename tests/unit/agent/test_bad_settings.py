"""Any command line, KubeletConfiguration or manifest is accepted, or refused with the place of the error."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.build import derive
from agent.build.standalone import adapted
from agent.config.flags import FIELD_FLAGS, OWN_FLAGS
from agent.config.parse import parse
from agent.config.schema import API_VERSION, FIELDS, KIND
from agent.settings import Settings
from agent.static.plan.manifest import Origin, decode
from nodelib.errors import Invalid
from nodelib.json_values import Json
from tests.unit.agent.changes import SPEC, TIMES, WORDS, Change, changed, changes_of

_TEXTS = st.one_of(
    st.sampled_from(
        [*WORDS, "true", "0", "65536", "10s", "-5m", "1h1", "a=b", "a=b:NoExecute", "memory.available<100Mi", "::1",
         "10.0.0.1,::1", "0:memory=1Gi", "Webhook", "unix:///run/x.sock", "tcp://x:1", "http://[", "100%", "1e9", "²"]
    ),
    st.text(max_size=6),
)  # fmt: skip
_FLAGS = st.lists(
    st.tuples(st.sampled_from(sorted({*FIELD_FLAGS, *OWN_FLAGS} - {"config", "config-dir"})), _TEXTS),
    min_size=1,
    max_size=3,
)
_GIVEN: dict[str, Any] = {
    "apiVersion": API_VERSION,
    "kind": KIND,
    **{path: entry.default for path, entry in FIELDS.items() if "." not in path and entry.default is not None},
    "evictionHard": {"memory.available": "100Mi", "nodefs.available": "10%"},
    "evictionSoft": {"memory.available": "200Mi"},
    "evictionSoftGracePeriod": {"memory.available": "30s"},
    "kubeReserved": {"cpu": "100m", "memory": "100Mi"},
    "registerWithTaints": [{"key": "a", "value": "b", "effect": "NoSchedule"}],
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
    "shutdownGracePeriodByPodPriority": [{"priority": 0, "shutdownGracePeriodSeconds": 10}],
    "authentication": {"anonymous": {"enabled": False}, "webhook": {"cacheTTL": "2m"}},
    "clusterDNS": ["10.96.0.10"],
    "staticPodURLHeader": {"A": ["b"]},
}
_SLOW = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]


def _used(found: Settings) -> None:
    """What the agent computes from its settings before it touches the machine."""
    derive.stats_settings(found)
    derive.eviction_policy(found)
    derive.reserved_cgroups(found, 2)
    try:
        adapted(found)
    except Invalid as error:
        assert error.message and error.action


@settings(max_examples=80 * TIMES, derandomize=TIMES == 1, deadline=None, suppress_health_check=_SLOW)
@given(flags=_FLAGS, separate=st.booleans())
def test_any_value_of_any_flag_is_accepted_or_refused(flags: list[tuple[str, str]], separate: bool) -> None:
    argv = [word for name, text in flags for word in ([f"--{name}", text] if separate else [f"--{name}={text}"])]
    try:
        _used(parse(argv, hostname="n"))
    except Invalid as error:
        assert error.message and (error.obj or error.step)


@settings(max_examples=80 * TIMES, derandomize=TIMES == 1, deadline=None, suppress_health_check=_SLOW)
@given(changes=changes_of(_GIVEN))
def test_any_value_of_any_field_is_accepted_or_refused(tmp_path: Path, changes: list[Change]) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(changed(_GIVEN, changes)))
    try:
        _used(parse([f"--config={file}"], hostname="n"))
    except Invalid as error:
        assert str(file) in str(error), error


def test_the_configuration_that_these_tests_change_is_a_good_one(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(_GIVEN))
    found = parse([f"--config={file}"], hostname="n")
    _used(found)
    assert found.node.name == "n" and derive.reserved_cgroups(found, 2) is not None


_PLACE = Origin("file", "/etc/kubernetes/manifests/web.yaml", "n1")
_POD: Json = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "labels": {"a": "b"}}, "spec": SPEC}


def _assert_read_or_refused(data: bytes) -> None:
    try:
        for pod in decode(data, _PLACE, "2026-01-01T00:00:00Z").pods:
            assert pod.uid and pod.name
    except Invalid as error:
        assert _PLACE.place in str(error) and error.action


@settings(max_examples=80 * TIMES, derandomize=TIMES == 1, deadline=None, suppress_health_check=_SLOW)
@given(changes=changes_of(_POD))
def test_a_manifest_with_anything_in_it_is_read_or_refused(changes: list[Change]) -> None:
    _assert_read_or_refused(yaml.safe_dump(changed(_POD, changes)).encode())


@settings(max_examples=80 * TIMES, derandomize=TIMES == 1, deadline=None, suppress_health_check=_SLOW)
@given(data=st.binary(max_size=120), at=st.integers(0, 400), cut=st.integers(0, 60))
def test_a_broken_manifest_is_read_or_refused(data: bytes, at: int, cut: int) -> None:
    """As a disk, or an editor that is not done, leaves one."""
    whole = yaml.safe_dump(_POD).encode()
    _assert_read_or_refused(whole[:at] + data + whole[at + cut :])


def test_the_manifest_that_these_tests_change_is_assert_read_or_refused() -> None:
    pod = copy.deepcopy(_POD)
    pod["spec"]["volumes"] = pod["spec"]["volumes"][:1]  # a static pod may not name a ConfigMap
    _assert_read_or_refused(yaml.safe_dump(pod).encode())
    assert decode(yaml.safe_dump(pod).encode(), _PLACE, "2026-01-01T00:00:00Z").pods
