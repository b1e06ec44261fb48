"""ResourceClaims: which a pod uses, whether it may, and what its containers get."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.common.model.pods import Pod
from agent.devices.model.dra import ClaimRef, ClaimState, PreparedDevice
from agent.devices.plan import dra
from nodelib.errors import Invalid, NodewrightError, Temporary
from nodelib.json_values import Json
from tests.builders.pods import container, pod

REF = ClaimRef("shop", "c1", "claim-uid")
ONE = PreparedDevice("drv", "pool", "dev-1", ("gpu",), ("v/c=1",))
TWO = PreparedDevice("drv", "pool", "dev-2", ("big/part",), ("v/c=2",))


def subject(*claims: Json, status: Json | None = None) -> Pod:
    return pod(container(), status=status, resourceClaims=list(claims))


DIRECT = {"name": "acc", "resourceClaimName": "c1"}
MADE = {"name": "acc", "resourceClaimTemplateName": "t"}
STATE = ClaimState(REF, ("drv",), frozenset({subject(DIRECT).uid}), True, (ONE, TWO))


@pytest.mark.parametrize(
    ("entry", "statuses", "expected"),
    [
        pytest.param(DIRECT, [], {"acc": "c1"}, id="named"),
        pytest.param(MADE, [{"name": "acc", "resourceClaimName": "web-acc"}], {"acc": "web-acc"}, id="made"),
        pytest.param(MADE, [{"name": "acc"}], {}, id="its template made none"),
        pytest.param(MADE, [], None, id="not made yet"),
    ],
)
def test_claim_names(entry: Json, statuses: list[Json], expected: dict[str, str] | None) -> None:
    who = subject(entry, status={"resourceClaimStatuses": statuses})
    if expected is None:
        with pytest.raises(Temporary, match="has not been created yet"):
            dra.claim_names(who)
    else:
        assert dra.claim_names(who) == expected


def claim(**change: Any) -> Json:
    results = [{"driver": "drv", "request": "gpu"}, {"driver": "other"}, {"driver": "drv"}]
    status = {"reservedFor": [{"uid": subject().uid}], "allocation": {"devices": {"results": results}}}
    meta = {"namespace": "shop", "name": "c1", "uid": "claim-uid"}
    return {"metadata": {**meta, **change.pop("metadata", {})}, "status": {**status, **change}}


def test_a_claim_names_each_driver_once() -> None:
    found = dra.usable(subject(DIRECT), claim(), from_template=False)
    assert found.drivers == ("drv", "other") and found.ref == REF and not found.prepared


@pytest.mark.parametrize(
    ("entry", "change", "why"),
    [
        pytest.param(DIRECT, {"reservedFor": []}, "not allowed to use", id="reserved for others"),
        pytest.param(DIRECT, {"allocation": None}, "not allocated", id="not allocated"),
        pytest.param(MADE, {}, "not made for this pod", id="another pod's"),
    ],
)
def test_claims_that_may_not_be_used(entry: Json, change: Json, why: str) -> None:
    with pytest.raises(NodewrightError, match=why):
        who = subject(entry, status={"resourceClaimStatuses": [{"name": "acc", "resourceClaimName": "c1"}]})
        dra.usable(who, claim(**change), from_template=dra.claims_to_prepare(who)["c1"])


def test_pods_that_share_a_claim() -> None:
    fresh = ClaimState(REF, ("drv",), frozenset({"b"}))
    assert dra.with_pod(STATE, fresh).pods == {*STATE.pods, "b"} and dra.with_pod(STATE, fresh).prepared
    with pytest.raises(Temporary, match="different UID"):
        dra.with_pod(STATE, replace(fresh, ref=replace(REF, uid="another")))


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        pytest.param([{"name": "acc"}], ("v/c=1", "v/c=2"), id="the whole claim"),
        pytest.param([{"name": "acc", "request": "gpu"}], ("v/c=1",), id="one request"),
        pytest.param([{"name": "acc", "request": "big"}], ("v/c=2",), id="a request with alternatives"),
        pytest.param([{"name": "else"}], (), id="another claim"),
        pytest.param([], (), id="none"),
    ],
)
def test_what_a_container_gets(wanted: list[Json], expected: tuple[str, ...]) -> None:
    box = container(resources={"claims": wanted})
    assert dra.grant(subject(DIRECT), box, [STATE]).cdi_devices == expected


def test_podresources() -> None:
    box = container(resources={"claims": [{"name": "acc", "request": "gpu"}]})
    (found,) = dra.dynamic_resources(subject(DIRECT), box, dra.claims_of(subject(DIRECT), [STATE]))
    assert (found["claim_name"], found["claim_namespace"]) == ("c1", "shop")
    device = {"driver_name": "drv", "pool_name": "pool", "device_name": "dev-1"}
    assert found["claim_resources"] == [{"cdi_devices": [{"name": "v/c=1"}], **device}]


def test_the_checkpoint() -> None:
    assert dra.decode(dra.encode([STATE])) == {("shop", "c1"): STATE}
    for text in ("", "[]", '{"Data": {"Claims": [{}]}}'):
        with pytest.raises(Invalid):
            dra.decode(text)
