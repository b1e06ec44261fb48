"""Who may ask what."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from view.model.objects import Look, Question
from view.plan import requests

TOKEN = "correct-token"
HERE = {"host": "127.0.0.1:8080"}
OWN = {**HERE, "origin": "http://127.0.0.1:8080"}


@pytest.mark.parametrize(
    ("method", "target", "headers", "status"),
    [
        ("GET", f"/{TOKEN}/", HERE, 200),
        ("GET", f"/{TOKEN}/style.css?x=1", HERE, 200),
        ("GET", f"/{TOKEN}/", {"host": "localhost:9"}, 200),
        ("GET", f"/{TOKEN}/", {"host": "[::1]:9"}, 200),
        ("GET", f"/{TOKEN}/live", OWN, 200),
        ("GET", f"/{TOKEN}", HERE, 404),
        ("GET", "/", HERE, 404),
        ("GET", "/wrong-token!/", HERE, 404),
        ("GET", f"/{TOKEN[:-1]}/", HERE, 404),
        ("GET", f"/{TOKEN}x/", HERE, 404),
        ("GET", f"/?{TOKEN}/", HERE, 404),
        ("GET", "/\udcff\udcfe/", HERE, 404),
        ("GET", f"http://evil.example/{TOKEN}/", HERE, 404),
        ("GET", f"/{TOKEN}/" + "a" * 5000, HERE, 414),
        ("GET", f"/{TOKEN}/", {"host": "evil.example"}, 403),
        ("GET", f"/{TOKEN}/", {"host": "127.0.0.1.evil.example"}, 403),
        ("GET", f"/{TOKEN}/", {"host": "evil.example:8080@127.0.0.1"}, 403),
        ("GET", f"/{TOKEN}/", {"host": "127.0.0.1:8080\n"}, 403),
        ("GET", f"/{TOKEN}/", {}, 403),
        ("POST", f"/{TOKEN}/", HERE, 405),
        ("HEAD", f"/{TOKEN}/", HERE, 405),
        ("OPTIONS", f"/{TOKEN}/", HERE, 405),
        ("GET", f"/{TOKEN}/live", HERE, 403),
        ("GET", f"/{TOKEN}/live", {**HERE, "origin": "http://evil.example"}, 403),
        ("GET", f"/{TOKEN}/live", {**HERE, "origin": "http://127.0.0.1:9999"}, 403),
        ("GET", f"/{TOKEN}/live", {**HERE, "origin": "null"}, 403),
    ],
)
def test_only_this_page_in_a_browser_on_this_machine_is_answered(
    method: str, target: str, headers: dict[str, str], status: int
) -> None:
    verdict = requests.judge(method, target, headers, TOKEN)
    assert verdict.status == status
    assert status == 200 or TOKEN not in verdict.what


@given(st.text(max_size=60))
def test_no_other_token_opens_anything(guess: str) -> None:
    target = f"/{guess}/"
    expected = guess.partition("?")[0].partition("/")[0] == TOKEN
    assert (requests.judge("GET", target, HERE, TOKEN).status == 200) == expected


@pytest.mark.parametrize(
    ("text", "look"),
    [
        ('{"look": "pod/shop/web-0"}', Look("pod", ("shop", "web-0"))),
        ('{"look": "node//node1.example"}', Look("node", ("", "node1.example"))),
        ('{"look": ""}', None),
        ('{"look": "secret/shop/key"}', None),
        ('{"look": "endpointslice/shop/web"}', None),
        ('{"look": "pod/../web"}', None),
        ('{"look": "pod/shop/web/log"}', None),
        ('{"look": 5}', None),
        ("[1]", None),
        ("{", None),
        (json.dumps({"look": "pod/shop/" + "a" * 5000}), None),
    ],
)
def test_a_browser_looks_at_one_object_of_the_kinds_on_the_page(text: str, look: Look | None) -> None:
    assert requests.look(text) == look


@given(st.text())
def test_whatever_a_browser_says_is_read(text: str) -> None:
    requests.look(text)


@pytest.mark.parametrize(
    ("query", "asked"),
    [
        ({"from": "shop/web-0", "to": "kube-dns:53", "protocol": "udp"}, Question("shop/web-0", "kube-dns:53", "udp")),
        ({"from": "outside", "to": "[fd00::1]:80"}, Question("outside", "[fd00::1]:80")),
        ({"from": "a", "to": ""}, None),
        ({"from": "--help", "to": "b"}, None),
        ({"from": "a", "to": "b", "protocol": "icmp"}, None),
        ({"from": "a b", "to": "c"}, None),
        ({"from": "a" * 500, "to": "c"}, None),
        ({}, None),
    ],
)
def test_a_question_has_names_or_addresses(query: dict[str, str], asked: Question | None) -> None:
    assert requests.question(query) == asked
