"""When a node certificate is renewed, what is asked for, and what an answer means."""

from __future__ import annotations

import base64

import pytest

from agent.certificates import plan as rotation
from agent.certificates.model import Leaf, Template
from agent.certificates.plan import Refusal, Signer

DAY = 86400.0


@pytest.mark.parametrize(
    ("not_before", "not_after", "since", "chance", "expected"),
    [
        pytest.param(0, 100, 0, 0.0, 70, id="earliest"),
        pytest.param(0, 100, 0, 1.0, 90, id="latest"),
        pytest.param(-300, 100, 0, 0.5, 80, id="a backdated short one lives from when it came"),
        pytest.param(0, 100, 200, 0.5, 100, id="came after its end"),
    ],
)
def test_rotation_after_70_to_90_percent(
    not_before: float, not_after: float, since: float, chance: float, expected: float
) -> None:
    leaf = Leaf(Template("x"), not_before, not_after)
    assert rotation.rotate_at(leaf, chance, since) == pytest.approx(expected)


ADDRESSES = [
    {"type": "InternalIP", "address": "10.0.0.2"},
    {"type": "InternalIP", "address": "fd00::0:2"},
    {"type": "Hostname", "address": "n1"},
    {"type": "ExternalDNS", "address": "n1.example.org"},
]


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        pytest.param([], None, id="nothing known yet"),
        pytest.param([{"type": "Hostname", "address": "n1"}], None, id="a name alone is not enough"),
        pytest.param(
            ADDRESSES,
            Template("system:node:n1", ("system:nodes",), ("n1", "n1.example.org"), ("10.0.0.2", "fd00::2")),
            id="names and both families",
        ),
        pytest.param(
            [{"type": "Hostname", "address": "10.0.0.9"}],
            Template("system:node:n1", ("system:nodes",), (), ("10.0.0.9",)),
            id="a host name that is an address",
        ),
    ],
)
def test_serving_names_are_those_of_the_node(addresses: list[dict[str, str]], expected: Template | None) -> None:
    assert rotation.serving_template("n1", addresses) == expected


@pytest.mark.parametrize(
    ("has", "good"),
    [
        pytest.param(Template("system:node:n1", ("system:nodes",), ("n1", "more"), ("10.0.0.2",)), True, id="more"),
        pytest.param(Template("system:node:n1", ("system:nodes",), (), ("10.0.0.2",)), False, id="a name is missing"),
        pytest.param(Template("system:node:n1", ("system:nodes",), ("n1",), ()), False, id="an address is missing"),
        pytest.param(Template("system:node:n2", ("system:nodes",), ("n1",), ("10.0.0.2",)), False, id="another node"),
        pytest.param(Template("system:node:n1", (), ("n1",), ("10.0.0.2",)), False, id="no group"),
    ],
)
def test_a_certificate_satisfies(has: Template, good: bool) -> None:
    wanted = Template("system:node:n1", ("system:nodes",), ("n1",), ("10.0.0.2",))
    assert rotation.satisfies(Leaf(has, 0, DAY), wanted) is good


APPROVED = {"type": "Approved", "status": "True"}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param({}, None, id="nobody has looked"),
        pytest.param({"conditions": [APPROVED]}, None, id="approved, not signed"),
        pytest.param({"certificate": base64.b64encode(b"c").decode()}, None, id="a certificate without an approval"),
        pytest.param(
            {"conditions": [APPROVED], "certificate": base64.b64encode(b"chain").decode()}, b"chain", id="issued"
        ),
        pytest.param(
            {"conditions": [{"type": "Denied", "reason": "No", "message": "not you"}]},
            Refusal("Denied", "No", "not you"),
            id="denied",
        ),
        pytest.param(
            {"conditions": [APPROVED, {"type": "Failed", "reason": "SignerValidationFailure"}]},
            Refusal("Failed", "SignerValidationFailure", ""),
            id="the signer refused",
        ),
    ],
)
def test_verdict(status: dict[str, object], expected: object) -> None:
    assert rotation.verdict({"metadata": {"name": "csr-1"}, "status": status}) == expected


def test_an_unanswered_request_says_how_to_approve_it() -> None:
    waits_for_approval = rotation.pending({"status": {}}, "csr-1")
    assert "kubectl certificate approve csr-1" in waits_for_approval.message and waits_for_approval.needs_approval
    waits_for_signer = rotation.pending({"status": {"conditions": [APPROVED]}}, "csr-1")
    assert "signer" in waits_for_signer.message and not waits_for_signer.needs_approval


def test_the_same_key_asks_under_the_same_name() -> None:
    assert rotation.bootstrap_name(b"key", "n1") == rotation.bootstrap_name(b"key", "n1")
    assert rotation.bootstrap_name(b"key", "n1") != rotation.bootstrap_name(b"key", "n2")


@pytest.mark.parametrize(
    ("now", "word"), [(0.0, "behind"), (50.0, ""), (500.0, "ahead")], ids=["clock behind", "agree", "clock ahead"]
)
def test_a_fresh_certificate_shows_whether_the_clocks_agree(now: float, word: str) -> None:
    problem = rotation.clock_problem(Leaf(Template("x"), 10, 100), now)
    assert (word in problem) if word else not problem


def test_requests_name_signer_and_usages() -> None:
    spec = rotation.request(Signer.SERVING, b"pem")["spec"]
    assert spec["signerName"] == "kubernetes.io/kubelet-serving"
    assert spec["usages"] == ["digital signature", "server auth"]
    assert rotation.request(Signer.CLIENT, b"pem", name="a")["metadata"] == {"name": "a"}
