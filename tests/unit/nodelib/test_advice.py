"""Commands that users copy: no word of others ends one, adds an option to it, or drives a terminal."""

from __future__ import annotations

import shlex
import time

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


@pytest.mark.parametrize("unit", ["key", "secret ", "configmap ", 'error mounting  to rootfs at "a"'])
@pytest.mark.parametrize("reason", ["CrashLoopBackOff", "RunContainerError"])
def test_advice_on_words_that_a_pod_chooses_is_found_in_no_time(unit: str, reason: str) -> None:
    """A probe's output has up to 10 KiB, and the agent's event loop looks for advice on that of each container."""
    message = (unit * 11_000)[: 10 * 1024]
    began = time.process_time()
    action_for(reason, message, Subject("shop", "web", "main"))
    assert time.process_time() - began < 0.1


@pytest.mark.parametrize("message", ["{} secret x not found", "secret x not found {}"])
def test_advice_on_a_long_message_is_found_at_both_ends(message: str) -> None:
    assert "kubectl create secret" in action_for("Any", message.format("x" * 100_000), Subject("shop", "web"))
