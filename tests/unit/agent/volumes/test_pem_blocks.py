"""Certificates in text that a signer writes as he likes: whatever it is, it is read in linear time."""

from __future__ import annotations

import base64
import time

import pytest

from agent.volumes.model.sources import TrustBundleProjection
from agent.volumes.plan.pem_blocks import certificates
from agent.volumes.plan.pod_certificates import clean_chain
from agent.volumes.plan.trust_bundles import anchors

BEGIN, END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
BODY = base64.b64encode(b"x" * 40).decode()
GOOD = f"{BEGIN}\n{BODY}\n{END}\n"
MANY = 300_000  # bytes; the API server takes a MiB

_HOSTILE = [
    pytest.param(BEGIN + "\n" * MANY + "!", id="blanks without an end"),
    pytest.param(BEGIN + "\n" * MANY + END, id="blanks"),
    pytest.param(f"{BEGIN}\n" * (MANY // len(BEGIN)), id="beginnings"),
    pytest.param(f"{END}\n" * (MANY // len(END)), id="ends"),
    pytest.param("-----BEGIN " * (MANY // 11), id="a line of beginnings"),
    pytest.param(BEGIN + "A \n" * (MANY // 3), id="text without an end"),
]


@pytest.mark.parametrize("text", _HOSTILE)
def test_hostile_text_is_soon_read(text: str) -> None:
    began = time.process_time()
    bundle = {"metadata": {"name": "b"}, "spec": {"trustBundle": GOOD + text}}
    assert anchors([TrustBundleProjection(name="b")], [bundle])[TrustBundleProjection(name="b")] == GOOD.encode()
    assert clean_chain(GOOD + text).startswith(GOOD.encode())
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param(GOOD, [f"\n{BODY}\n"], id="one"),
        pytest.param(f"{END}{BEGIN}lost{GOOD}{END}", [f"\n{BODY}\n"], id="the last beginning before an end"),
        pytest.param(BEGIN, [], id="no end"),
    ],
)
def test_blocks(text: str, found: list[str]) -> None:
    assert list(certificates(text)) == found


def test_a_certificate_that_cannot_be_decoded_takes_no_others_along() -> None:
    """The API server skips it as well, so that it may be in a bundle."""
    bundle = {"metadata": {"name": "b"}, "spec": {"trustBundle": f"{BEGIN}\nA\n{END}\n{GOOD}"}}
    assert anchors([TrustBundleProjection(name="b")], [bundle])[TrustBundleProjection(name="b")] == GOOD.encode()
