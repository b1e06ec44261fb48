"""A kubelet's configuration from its command line and files, with upstream's precedence and defaults."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.doctor.plan.cis_kubelet import value
from controlplane.doctor.plan.kubelet_files import flags_of, from_files, proxy_settings

FILE: dict[str, Any] = {"authorization": {"mode": "Webhook"}, "podPidsLimit": 5, "featureGates": {"A": True}}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param(["--a=1", "--b", "2"], {"a": "1", "b": "2"}, id="both forms"),
        pytest.param(["--yes", "--b=2"], {"yes": "true", "b": "2"}, id="a boolean alone"),
        pytest.param(["--a=1", "--a=2"], {"a": "2"}, id="the last counts"),
        pytest.param(["--read_only_port=1"], {"read-only-port": "1"}, id="underscores"),
        pytest.param(["--last"], {"last": "true"}, id="at the end"),
        pytest.param(["--config=/a=b"], {"config": "/a=b"}, id="an equals sign in the value"),
    ],
)
def test_flags(words: list[str], expected: dict[str, str]) -> None:
    assert flags_of(words) == expected


@pytest.mark.parametrize(
    ("flags", "documents", "path", "expected"),
    [
        pytest.param({}, [FILE], "podPidsLimit", 5, id="file"),
        pytest.param({}, [FILE, {"podPidsLimit": 6}], "podPidsLimit", 6, id="a drop-in wins over the file"),
        pytest.param({"pod-max-pids": "7"}, [FILE], "podPidsLimit", 7, id="a flag wins over both"),
        pytest.param({}, [{}], "authorization.mode", "Webhook", id="default with a file"),
        pytest.param({}, [], "authorization.mode", "AlwaysAllow", id="default without a file"),
        pytest.param({}, [], "authentication.anonymous.enabled", True, id="anonymous without a file"),
        pytest.param({}, [], "readOnlyPort", 10255, id="read-only port without a file"),
        pytest.param({"feature-gates": "B=false"}, [FILE], "featureGates.A", True, id="gates are merged"),
        pytest.param({"feature-gates": "B=false"}, [FILE], "featureGates.B", False, id="gates of flags"),
        pytest.param({"tls-cipher-suites": "A, B"}, [], "tlsCipherSuites", ["A", "B"], id="list"),
        pytest.param(
            {"client-ca-file": "/c"}, [{"authentication": None}], "authentication.x509.clientCAFile", "/c", id="nested"
        ),
        pytest.param({"pod-max-pids": "many"}, [], "podPidsLimit", "many", id="what is no number stays"),
    ],
)
def test_where_a_value_comes_from(flags: dict[str, str], documents: list[Any], path: str, expected: object) -> None:
    assert value(from_files(flags, documents), path) == expected


def test_documents_are_not_changed() -> None:
    document: dict[str, Any] = {"featureGates": {"A": True}}
    from_files({"feature-gates": "B=true"}, [document])
    assert document == {"featureGates": {"A": True}}


@pytest.mark.parametrize(
    ("flags", "document", "expected"),
    [
        pytest.param({"kubeconfig": "/k"}, None, ("/k", "127.0.0.1:10249"), id="flags"),
        pytest.param({"metrics-bind-address": "0.0.0.0:1"}, None, ("", "0.0.0.0:1"), id="metrics"),
        pytest.param({"metrics-bind-address": "0.0.0.0:1"}, {}, ("", "127.0.0.1:10249"), id="a file hides flags"),
        pytest.param(
            {},
            {"clientConnection": {"kubeconfig": "/k"}, "metricsBindAddress": ""},
            ("/k", "127.0.0.1:10249"),
            id="file",
        ),
    ],
)
def test_settings_of_a_proxy(flags: dict[str, str], document: Any, expected: tuple[str, str]) -> None:
    assert proxy_settings(flags, document) == expected
