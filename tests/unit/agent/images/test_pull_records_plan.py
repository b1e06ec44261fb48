"""Which pods may use a local image, and the files that record it."""

from __future__ import annotations

import json

import pytest

from agent.images.model.pulls import Access, PullCredential, PulledRecord, SecretSource
from agent.images.plan import pull_records as plan
from agent.images.plan.pull_records import VerifyPolicy
from nodelib.errors import Invalid

SECRET = SecretSource("shop", "pull", "uid-1", "hash-1")
OTHER = SecretSource("bank", "pull", "uid-2", "hash-2")
MINE = PullCredential({"username": "me"}, SECRET)
NODES = PullCredential({"username": "node"})
IMAGE = "reg.io/team/app:1"


def record(access: Access | None = None) -> PulledRecord:
    return PulledRecord("sha256:a", 1.0, {"reg.io/team/app": access} if access else {})


@pytest.mark.parametrize(
    ("image", "expect"),
    [
        ("busybox", "busybox"),
        ("busybox:1", "busybox"),
        ("reg.io:5000/a/b", "reg.io:5000/a/b"),
        ("reg.io:5000/a/b:1@sha256:00", "reg.io:5000/a/b"),
    ],
)
def test_repository(image: str, expect: str) -> None:
    assert plan.repository(image) == expect


@pytest.mark.parametrize(
    ("policy", "here", "there"),
    [
        (VerifyPolicy("NeverVerify"), False, False),
        (VerifyPolicy("AlwaysVerify"), True, True),
        (VerifyPolicy(), True, False),
        (VerifyPolicy("NeverVerifyAllowlistedImages", ("reg.io/team/*",)), False, False),
        (VerifyPolicy("NeverVerifyAllowlistedImages", ("reg.io/team/app",)), False, False),
        (VerifyPolicy("NeverVerifyAllowlistedImages", ("reg.io/team",)), True, True),
    ],
    ids=["never", "always", "not those that were there before", "by prefix", "by name", "another name"],
)
def test_policies(policy: VerifyPolicy, here: bool, there: bool) -> None:
    assert (policy.asks(IMAGE, pulled_here=True), policy.asks(IMAGE, pulled_here=False)) == (here, there)


@pytest.mark.parametrize(
    ("access", "by", "expect"),
    [
        pytest.param(None, [MINE], False, id="from another repository"),
        pytest.param(Access(everybody=True), [], True, id="everybody"),
        pytest.param(Access(secrets=(SECRET,)), [], False, id="no credential"),
        pytest.param(Access(secrets=(SECRET,)), [MINE], True, id="the same secret"),
        pytest.param(Access(secrets=(OTHER,)), [MINE], False, id="another secret"),
        pytest.param(
            Access(secrets=(SecretSource("x", "y", "z", "hash-1"),)), [MINE], True, id="the same credential elsewhere"
        ),
        pytest.param(
            Access(secrets=(SecretSource("shop", "pull", "uid-1", "old"),)), [MINE], True, id="renewed since then"
        ),
        pytest.param(Access(secrets=(SecretSource("x", "y", "z", ""),)), [MINE], False, id="no hash is not a match"),
        pytest.param(Access(secrets=(SECRET,)), [NODES], False, id="the node's own"),
    ],
)
def test_known(access: Access | None, by: list[PullCredential], expect: bool) -> None:
    assert plan.is_known(record(access), IMAGE, by) is expect


def test_access_adds_up_and_for_everybody_stays_for_everybody() -> None:
    first = plan.granted(None, "sha256:a", IMAGE, [MINE], 2.0)
    assert first.access == {"reg.io/team/app": Access(secrets=(SECRET,))}
    assert plan.granted(first, "sha256:a", IMAGE, [MINE], 3.0) is first
    second = plan.granted(first, "sha256:a", IMAGE, [PullCredential({}, OTHER)], 3.0)
    assert second.access["reg.io/team/app"].secrets == (OTHER, SECRET)
    assert plan.granted(second, "sha256:a", IMAGE, [], 4.0).access["reg.io/team/app"] == Access(everybody=True)
    assert plan.granted(second, "sha256:a", IMAGE, [NODES], 4.0).access["reg.io/team/app"] == Access(everybody=True)
    assert plan.granted(None, "sha256:a", IMAGE, None, 4.0).access == {}


def test_a_renewed_secret_takes_the_place_of_the_old_one() -> None:
    renewed = SecretSource("shop", "pull", "uid-1", "hash-9")
    found = plan.granted(record(Access(secrets=(SECRET,))), "sha256:a", IMAGE, [PullCredential({}, renewed)], 2.0)
    assert found.access["reg.io/team/app"].secrets == (renewed,)


def test_files_are_upstreams() -> None:
    text = plan.encode(record(Access(secrets=(SECRET,))))
    body = json.loads(text)
    assert (body["kind"], body["apiVersion"]) == ("ImagePulledRecord", "kubelet.config.k8s.io/v1beta1")
    (secret,) = body["credentialMapping"]["reg.io/team/app"]["kubernetesSecrets"]
    assert secret == {"uid": "uid-1", "namespace": "shop", "name": "pull", "credentialHash": "hash-1"}
    assert plan.decode(text) == record(Access(secrets=(SECRET,)))
    assert plan.decode(plan.encode(record(Access(everybody=True)))) == record(Access(everybody=True))
    assert plan.decode_intent(plan.encode_intent(IMAGE)) == IMAGE
    assert plan.file_name("a") == "sha256-ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"imageRef": 7}', '{"lastUpdatedTime": "x", "imageRef": "a"}'])
def test_a_broken_file_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="not a record of a pull"):
        plan.decode(text)


def test_hash_of_a_credential() -> None:
    # sha256 of {"username":"me","password":"x"}, as Go's encoding/json writes it.
    assert plan.hashed({"username": "me", "password": "x"}) == (
        "e4ec28685ef08a8cb824fb0a9436e9d2fc512eaaada23d269c41aa30a1308f14"
    )


def test_an_image_with_more_names_than_it_has_bytes() -> None:
    """A registry may serve one image under any: the record, which is written whole for each, had all of them."""
    found = plan.granted(record(), "sha256:a", IMAGE, [], 2.0)
    for number in range(2000):
        found = plan.granted(found, "sha256:a", f"evil.example/{number}", [], 3.0)
    assert len(found.access) == 1000 and "reg.io/team/app" in found.access
    assert not plan.is_known(found, "evil.example/1999", [])
    assert plan.granted(found, "sha256:a", "evil.example/1999", [], 9.0) is found
    private = plan.granted(found, "sha256:a", IMAGE, [MINE], 4.0)
    assert private.access["reg.io/team/app"].everybody, "those that are there go on to be renewed"
