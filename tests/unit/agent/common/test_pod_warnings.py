"""Warnings about pods: once each, until the pod is gone."""

from __future__ import annotations

from agent.common.work.pod_warnings import PodWarnings
from tests.builders.pods import pod

ONE, TWO = pod(meta={"uid": "1"}), pod(meta={"uid": "2"})


def test_each_pod_gets_each_warning_once() -> None:
    sent: list[tuple[str, str, str]] = []
    warnings = PodWarnings(lambda subject, reason, message: sent.append((subject.uid, reason, message)))
    for _ in range(2):
        warnings.warn_once(ONE, "R", "a")
        warnings.warn_once(ONE, "R", "b")
        warnings.warn_once(TWO, "R", "a")
    assert sent == [("1", "R", "a"), ("1", "R", "b"), ("2", "R", "a")]


def test_a_pod_that_is_gone_is_not_remembered() -> None:
    sent: list[str] = []
    warnings = PodWarnings(lambda subject, reason, message: sent.append(subject.uid))
    warnings.warn_once(ONE, "R", "a")
    warnings.warn_once(TWO, "R", "a")
    warnings.drop_pod("1")
    warnings.drop_pod("never seen")
    warnings.warn_once(ONE, "R", "a")
    warnings.warn_once(TWO, "R", "a")
    assert sent == ["1", "2", "1"]
