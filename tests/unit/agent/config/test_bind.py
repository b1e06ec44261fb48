"""Settings are filled by the bindings of their fields, and no field or flag is silently not obeyed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.common.model.binding import flag_source, gate_source
from agent.config.bind import bound
from agent.config.flags import parse_flags
from agent.config.schema import FIELDS
from agent.node.plan.shutdown import Period
from agent.settings import Settings
from nodelib.upstream.answers import field_answers, gates
from tests.unit.agent.config.test_settings import parsed

# Fields that only change how the configuration is read (agent/config/load.py and rules.py).
_NO_SETTING = {"featureGates", "mergeDefaultEvictionSettings", "runOnce"}
_NO_SETTING_FLAGS = {"--config", "--config-dir"}


def test_every_field_is_bound_to_a_setting_or_says_what_happens_instead() -> None:
    others = {path for path, entry in FIELDS.items() if not entry.obeyed}
    assert set(FIELDS) - bound(Settings) - others == _NO_SETTING
    assert not bound(Settings) & others
    assert all(field_answers("kubelet")[path].instead for path in others)


def test_every_flag_without_a_field_is_bound_to_a_setting() -> None:
    flags = {flag_source(name) for name in parse_flags([]).own}
    assert flags - bound(Settings) == _NO_SETTING_FLAGS
    assert bound(Settings) - flags <= set(FIELDS) | {gate_source(name) for name in gates()}


@pytest.mark.parametrize(
    ("text", "section", "expect"),
    [
        pytest.param("port: 10260\n", "server", {"port": 10260}, id="as it is"),
        pytest.param("authorization: {mode: AlwaysAllow}\n", "server.auth", {"mode": "AlwaysAllow"}, id="nested"),
        pytest.param(
            "streamingConnectionIdleTimeout: 5h\n", "server", {"streaming_idle_timeout": 18000.0}, id="duration"
        ),
        pytest.param("containerLogMaxSize: 11Mi\n", "logs", {"max_size": 11 << 20}, id="quantity"),
        pytest.param("enforceNodeAllocatable: [none]\n", "cgroups", {"enforce": frozenset({"none"})}, id="set"),
        pytest.param("cgroupRoot: /a/\n", "cgroups.pods", {"root": "/a"}, id="path"),
        pytest.param("staticPodURLHeader: {A: [b, c]}\n", "static", {"url_headers": {"A": ("b", "c")}}, id="mapping"),
        pytest.param("cpuCFSQuotaPeriod: 50ms\n", "cgroups.pods", {"cpu_period": 50_000}, id="microseconds"),
        pytest.param("imageMinimumGCAge: 3m\n", "images.gc", {"min_age": 180.0}, id="of another room"),
        pytest.param("serializeImagePulls: false\n", "images", {"parallel_pulls": 0}, id="one of two fields"),
        pytest.param("maxParallelImagePulls: 4\n", "images", {"parallel_pulls": 4}, id="the other of two fields"),
        pytest.param(
            "shutdownGracePeriodByPodPriority: [{priority: 1, shutdownGracePeriodSeconds: 10}]\n",
            "",
            {"shutdown_periods": (Period(1, 10),)},
            id="records",
        ),
    ],
)
def test_a_setting_has_the_value_of_its_field(tmp_path: Path, text: str, section: str, expect: dict[str, Any]) -> None:
    found: Any = parsed(tmp_path, text)
    for name in filter(None, section.split(".")):
        found = getattr(found, name)
    assert {name: getattr(found, name) for name in expect} == expect
