"""PodCertificateRequests and their answers."""

from __future__ import annotations

import base64

import pytest

from agent.volumes.model.sources import CertificateProjection
from agent.volumes.plan.pod_certificates import Age, Issued, Refused, age, answer_of, clean_chain, refresh_at, request
from nodelib.errors import Invalid
from nodelib.json_values import Json
from tests.builders.pods import pod

SOURCE = CertificateProjection("tls", 1, "example.com/s", "ED25519")


def block(data: bytes, label: str = "CERTIFICATE", headers: str = "") -> str:
    coded = base64.b64encode(data).decode()
    rows = "\n".join(coded[at : at + 64] for at in range(0, len(coded), 64))
    return f"-----BEGIN {label}-----\n{headers}{rows}\n-----END {label}-----\n"


ONE, TWO = block(b"one" * 40), block(b"two")


def test_request() -> None:
    made = request(pod(), SOURCE, b"proof", node="n1", node_uid="nu", account_uid="au")
    assert made["metadata"] == {
        "generateName": "req-",
        "namespace": "shop",
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "0b5c5f5e-1"}],
    }
    assert made["spec"] == {
        "signerName": "example.com/s",
        "podName": "web",
        "podUID": "0b5c5f5e-1",
        "serviceAccountName": "default",
        "serviceAccountUID": "au",
        "nodeName": "n1",
        "nodeUID": "nu",
        "stubPKCS10Request": base64.b64encode(b"proof").decode(),
    }


def test_request_with_everything() -> None:
    source = CertificateProjection("tls", 0, "example.com/s", "RSA3072", 3600, (("a.io/k", "v"),))
    spec = request(pod(serviceAccountName="robot"), source, b"", node="n1", node_uid="", account_uid="")["spec"]
    assert spec["maxExpirationSeconds"] == 3600
    assert spec["unverifiedUserAnnotations"] == {"a.io/k": "v"}
    assert spec["serviceAccountName"] == "robot"


TIMES = {"beginRefreshAt": "1970-01-01T00:10:00Z", "notAfter": "1970-01-01T01:00:00Z"}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param({}, None, id="pending"),
        pytest.param({"conditions": []}, None, id="no condition"),
        pytest.param(
            {"conditions": [{"type": "Denied", "reason": "UnsupportedKeyType", "message": "ED25519 please"}]},
            Refused("Denied", "UnsupportedKeyType", "ED25519 please"),
            id="denied",
        ),
        pytest.param({"conditions": [{"type": "Failed", "reason": "R"}]}, Refused("Failed", "R", ""), id="failed"),
        pytest.param(
            {"conditions": [{"type": "Issued"}], "certificateChain": ONE, **TIMES},
            Issued(ONE.encode(), 600, 3600),
            id="issued",
        ),
    ],
)
def test_answers(status: Json, expected: Issued | Refused | None) -> None:
    assert answer_of({"metadata": {"name": "req-1"}, "status": status}) == expected


def test_an_issued_request_without_times() -> None:
    with pytest.raises(Invalid, match="req-1: is issued without"):
        answer_of(
            {"metadata": {"name": "req-1"}, "status": {"conditions": [{"type": "Issued"}], "certificateChain": ONE}}
        )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(ONE + TWO, ONE + TWO, id="as it is"),
        pytest.param(f"leaf:\n{ONE}issuer, see below\n{TWO}the end", ONE + TWO, id="text between"),
        pytest.param(block(b"two", headers="X-Made: by\nX-At: noon\n\n"), TWO, id="headers"),
        pytest.param(ONE.replace("\n", "\r\n"), ONE, id="line ends"),
        pytest.param("nothing", "", id="nothing"),
    ],
)
def test_clean_chain(text: str, expected: str) -> None:
    assert clean_chain(text).decode() == expected


@pytest.mark.parametrize(
    ("issued", "chance", "expected"),
    [
        pytest.param(Issued(b"", 1000, 9000), 0.0, 1000, id="at the hint"),
        pytest.param(Issued(b"", 1000, 9000), 0.5, 1150, id="jitter"),
        pytest.param(Issued(b"", 1000, 1200), 0.5, 1050, id="short notice"),
        pytest.param(Issued(b"", 1000, 900), 0.5, 1000, id="expired before the hint"),
    ],
)
def test_refresh_at(issued: Issued, chance: float, expected: float) -> None:
    assert refresh_at(issued, chance) == expected


@pytest.mark.parametrize(
    ("now", "expected"),
    [(999, Age.FRESH), (1600, Age.FRESH), (1601, Age.OVERDUE), (5000, Age.OVERDUE), (5001, Age.EXPIRED)],
)
def test_age(now: float, expected: Age) -> None:
    assert age(1000, 5000, now) is expected
