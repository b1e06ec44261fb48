"""When service account tokens are renewed, and what is requested."""

from __future__ import annotations

import pytest

from agent.volumes.model.sources import TokenRequest
from agent.volumes.plan.tokens import Token, is_fresh, issued, postponed, request_body, seconds_until_renewal
from tests.builders.pods import pod

NOW = 1_767_225_600.0  # 2026-01-01T00:00:00Z
REQUEST = TokenRequest("vault", 3600)


@pytest.mark.parametrize(
    ("expires", "lifetime", "renew"),
    [
        pytest.param("2026-01-01T01:00:00Z", 3600, NOW + 2880, id="at 80 %"),
        pytest.param("2026-01-01T02:00:00Z", 7200, NOW + 5760, id="the lifetime that was given, not asked for"),
        pytest.param("2026-01-11T00:00:00Z", 864_000, NOW + 86_400, id="after a day at the latest"),
    ],
)
def test_when_a_token_is_renewed(expires: str, lifetime: int, renew: float) -> None:
    answer = {"status": {"token": "t", "expirationTimestamp": expires}, "spec": {"expirationSeconds": lifetime}}
    token = issued(answer, REQUEST, 0)
    assert (token.text, token.renew_at) == ("t", renew)
    assert issued(answer, REQUEST, 7).renew_at == renew - 7
    assert is_fresh(token, renew - 1) and not is_fresh(token, renew)


def test_an_old_token_serves_until_it_expires() -> None:
    token = Token("t", NOW, NOW + 40)
    again = postponed(token, NOW + 5)
    assert again == Token("t", NOW + 35, NOW + 40)
    assert postponed(token, NOW + 20) == Token("t", NOW + 40, NOW + 40)
    assert postponed(token, NOW + 40) is None


def test_the_wait_ends_at_the_first_renewal_or_after_an_hour() -> None:
    assert seconds_until_renewal([], NOW) == seconds_until_renewal([NOW + 9000], NOW) == 3600
    assert seconds_until_renewal([NOW + 50, NOW + 20], NOW) == 20
    assert seconds_until_renewal([NOW - 5], NOW) == 0


def test_a_request_is_bound_to_the_pod() -> None:
    spec = request_body(pod(), REQUEST)["spec"]
    assert (spec["boundObjectRef"]["name"], spec["audiences"], spec["expirationSeconds"]) == ("web", ["vault"], 3600)
