"""Whether an image is used as it is, pulled, or refused: by pull policy, presence and the pod's right to it."""

from __future__ import annotations

import pytest

from agent.images.plan.images import PullDecision, pull_decision

USE, PULL, REFUSE = PullDecision.USE, PullDecision.PULL, PullDecision.REFUSE


@pytest.mark.parametrize(
    ("policy", "present", "allowed", "expected"),
    [
        pytest.param("IfNotPresent", True, True, USE, id="there"),
        pytest.param("IfNotPresent", False, False, PULL, id="missing"),
        pytest.param("IfNotPresent", True, False, PULL, id="there, not for this pod"),
        pytest.param("Always", True, True, PULL, id="always"),
        pytest.param("Always", False, False, PULL, id="always, missing"),
        pytest.param("Never", True, True, USE, id="never, there"),
        pytest.param("Never", False, False, REFUSE, id="never, missing"),
        pytest.param("Never", True, False, REFUSE, id="never, not for this pod"),
    ],
)
def test_pull_decision(policy: str, present: bool, allowed: bool, expected: PullDecision) -> None:
    assert pull_decision(policy, present=present, allowed=allowed) is expected
