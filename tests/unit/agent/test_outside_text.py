"""Names and numbers of others to their last character, and values that say nothing of the secrets in them."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.certificates.model import KeyAndRequest
from agent.common.plan.downward import pod_field
from agent.config.labels import name_problem
from agent.devices.plan.devices import check_registration
from agent.eviction.plan.thresholds import share
from agent.images.model.pulls import PullCredential
from agent.images.plan.images import with_default_tag
from agent.volumes.model.sources import Credential, ObjectRef, TokenRequest, VolumeSources
from agent.volumes.model.volumes import AtomicVolume, FileProjection
from agent.volumes.plan.tokens import Token
from controlplane.host.model import Request
from nodelib.errors import Invalid
from nodelib.kube.access import ClusterAccess
from nodelib.text_numbers import is_number
from tests.builders.pods import pod

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("read", "good"),
    [
        pytest.param(with_default_tag, "docker.io/library/busybox:1.36", id="image"),
        pytest.param(with_default_tag, "sha256:" + "a" * 64, id="image id"),
        pytest.param(share, "10%", id="percentage"),
        pytest.param(share, "10Mi", id="quantity"),
        pytest.param(lambda text: pod_field(pod(), text), "metadata.labels['a']", id="field"),
        pytest.param(lambda text: check_registration("v1beta1", text), "example.com/gpu", id="resource"),
    ],
)
def test_a_newline_at_the_end_is_refused(read: Callable[[str], object], good: str) -> None:
    read(good)
    with pytest.raises(Invalid):
        read(good + "\n")


def test_a_name_with_a_newline_has_a_problem() -> None:
    assert name_problem("example.com") == "" and name_problem("example.com\n")


@pytest.mark.parametrize(
    ("text", "number"), [("0", True), ("65535", True), ("", False), ("²", False), ("٣", False), ("9" * 5000, False)]
)
def test_only_ascii_digits_are_numbers(text: str, number: bool) -> None:
    assert is_number(text) is number


def test_no_pattern_of_a_program_of_the_node_ends_in_a_dollar() -> None:
    """Patterns that read the output of our own commands, line by line, are in cli and controlplane."""
    found = []
    for folder in ("agent", "cni", "csi", "loadbalancer", "nodelib", "policy", "proxy", "view"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("re.") and node.args:
                    text = "".join(str(one.value) for one in ast.walk(node.args[0]) if isinstance(one, ast.Constant))
                    found += [f"{path}:{node.lineno}"] if text.endswith("$") else []
    assert found == []


def test_no_repr_shows_a_secret() -> None:
    """An exception's or a log line's repr() of a value must not publish what it carries."""
    shown = [
        PullCredential({"password": "s3cr3t"}),
        VolumeSources(objects={ObjectRef("secrets", "n"): {"data": "s3cr3t"}}, tokens={TokenRequest("", 1): "s3cr3t"}),
        AtomicVolume("v", "secret", {"f": FileProjection(b"s3cr3t", 0o600)}, in_memory=True),
        Token("s3cr3t", 0, 0),
        KeyAndRequest(b"s3cr3t", b""),
        Credential(b"s3cr3t", b""),
        ClusterAccess("https://x", token="s3cr3t", key_data=b"s3cr3t"),
        Request(token="s3cr3t"),
    ]
    assert [repr(one) for one in shown if "s3cr3t" in repr(one)] == []
