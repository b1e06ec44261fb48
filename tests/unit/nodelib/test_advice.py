"""Commands that users copy: no word of others ends one, adds an option to it, or drives a terminal."""

from __future__ import annotations

import shlex

import pytest

from agent.explain.plan.remedies import Subject, action_for
from cli.why.remedies import remedy
from nodelib.advice import filled

WORDS = [
    "x; touch /tmp/x",
    "$(id)",
    "`id`",
    "a b",
    "'",
    '"',
    "\n",
    "\x1b[2J",
    "--server=https://evil",
    "-x",
    "a" * 5000,
]


@pytest.mark.parametrize("word", WORDS)
def test_a_word_stays_one_word(word: str) -> None:
    text = filled("The {a} of `kubectl get {a} -n {b}`, and {a}.", {"a": word, "b": "shop"})
    assert text.count("`") == 2 and text.isprintable()
    command = shlex.split(text.split("`")[1])
    assert len(command) == 5 and command[:2] + command[3:] == ["kubectl", "get", "-n", "shop"]
    assert not command[2].startswith("-") and len(command[2]) <= 253


def test_braces_of_the_advice_stay() -> None:
    assert filled("-p '{{\"a\":null}}' {b}", {"b": 1}) == "-p '{\"a\":null}' 1"


@pytest.mark.parametrize(
    "message",
    [
        "exceeded quota: $(touch${IFS}/tmp/x), requested",
        'error looking up service account: serviceaccount "x; rm -rf /; #" not found',
        'serviceaccount "--server=https://evil" not found',
    ],
)
def test_a_message_of_an_event(message: str) -> None:
    """Whoever may create Events in a namespace chooses their words."""
    obj = {"metadata": {"name": "web", "namespace": "shop"}, "spec": {}}
    command = remedy("FailedCreate", message, "replicaset", obj).split("`")[1]
    words = shlex.split(command)
    assert words[-2:] == ["-n", "shop"] and len(words) == 6, words
    assert "--server=https://evil" not in words


def test_an_image_in_a_message() -> None:
    text = action_for("ErrImageNeverPull", 'Container image "x`; rm -rf / #" is not present', Subject("ns", "web"))
    assert shlex.split(text.split("`")[1]) == ["docker", "save", "-o", "image.tar", "x'; rm -rf / #"]
