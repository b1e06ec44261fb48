"""Trust anchors from ClusterTrustBundles."""

from __future__ import annotations

import base64
import json
import time

import pytest

from agent.volumes.model.sources import TrustBundleProjection
from agent.volumes.plan.trust_bundles import anchors, matches
from nodelib.errors import Invalid
from nodelib.json_values import Json


def pem(body: bytes, width: int = 64) -> str:
    text = base64.b64encode(body).decode()
    lines = "\n".join(text[at : at + width] for at in range(0, len(text), width))
    return f"-----BEGIN CERTIFICATE-----\n{lines}\n-----END CERTIFICATE-----\n"


def bundle(name: str, signer: str, content: str, **labels: str) -> Json:
    return {"metadata": {"name": name, "labels": labels}, "spec": {"signerName": signer, "trustBundle": content}}


ONE, TWO = b"1" * 100, b"2" * 100
BUNDLES = [
    bundle("a", "s", pem(ONE) + "comment\n" + pem(TWO), env="prod"),
    bundle("b", "s", pem(ONE, 32), env="test"),
    bundle("c", "", pem(TWO)),
]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param(TrustBundleProjection(name="c"), [TWO], id="by name"),
        pytest.param(TrustBundleProjection(name="gone"), None, id="by name, gone"),
        pytest.param(TrustBundleProjection(signer="s", selector="{}"), [ONE, TWO], id="signer, everything, each once"),
        pytest.param(TrustBundleProjection(signer="s"), None, id="signer, no selector matches nothing"),
        pytest.param(
            TrustBundleProjection(signer="s", selector=json.dumps({"matchLabels": {"env": "test"}})), [ONE], id="labels"
        ),
        pytest.param(TrustBundleProjection(signer="t", selector="{}"), None, id="another signer"),
    ],
)
def test_anchors(source: TrustBundleProjection, expected: list[bytes] | None) -> None:
    found = anchors([source], BUNDLES)
    assert found[source] == (None if expected is None else "".join(pem(body) for body in expected).encode())


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ({"key": "a", "operator": "In", "values": ["1", "2"]}, True),
        ({"key": "a", "operator": "NotIn", "values": ["1"]}, False),
        ({"key": "z", "operator": "NotIn", "values": ["1"]}, True),
        ({"key": "a", "operator": "Exists"}, True),
        ({"key": "a", "operator": "DoesNotExist"}, False),
    ],
    ids=lambda value: value["operator"] if isinstance(value, dict) else None,
)
def test_expressions(expression: Json, expected: bool) -> None:
    assert matches({"matchExpressions": [expression]}, {"a": "1"}) is expected


def test_unknown_operator() -> None:
    with pytest.raises(Invalid, match="operator"):
        matches({"matchExpressions": [{"key": "a", "operator": "Like"}]}, {})


def test_a_bundle_is_read_once_for_all_projections_of_a_pod() -> None:
    """It was decoded anew for each, on the event loop: 28 s and 1.9 GB for a pod of 10,000 and 150 certificates."""
    large = [bundle("a", "s", "".join(pem(b"%4d" % number * 200) for number in range(1000)))]
    selectors = [{"matchExpressions": [{"key": f"k{number}", "operator": "DoesNotExist"}]} for number in range(100)]
    wanted = [TrustBundleProjection(signer="s", selector=json.dumps(one)) for one in selectors]
    began = time.process_time()
    found = anchors(wanted, large)
    assert time.process_time() - began < 0.5
    assert len(found) == 100 and len({id(text) for text in found.values()}) == 1
