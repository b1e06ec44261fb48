"""YAML that others wrote: what it means, and that no text costs more than its limits."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from nodelib.errors import Invalid
from nodelib.kube.access import load_kubeconfig
from nodelib.safe_yaml import Limits, RefusedYaml, load, load_all, load_file
from proxy.config.file import read_config

LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{after}: &{after} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, after in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGES = "a0: &a0 {k0: 1}\n" + "".join(
    f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}], k{n}: 1}}\n" for n in range(1, 10)
)
BOMBS = [
    pytest.param("[" * 200_000, id="brackets"),
    pytest.param("- " * 200_000, id="dashes"),
    pytest.param("{a: " * 200_000, id="braces"),
    pytest.param("? " * 20_000, id="questions"),
    pytest.param("[" + "0," * 400_000 + "]", id="many values"),
    pytest.param(LAUGHS, id="a billion laughs"),
    pytest.param(MERGES, id="merge keys"),
    pytest.param("a: &a {<<: *a, b: 1}", id="a merge of itself"),
    pytest.param("a: &a [*a]", id="an alias of itself"),
    pytest.param("a: " + "9" * 100_000, id="digits"),
    pytest.param("a: 1" + ":1" * 50_000, id="base sixty"),
    pytest.param("a: 2026-99-99", id="no date"),
    pytest.param("a: !!python/object/apply:os.system [true]", id="code"),
    pytest.param("a: !!binary aGk=", id="binary"),
    pytest.param("? [1]\n: 2", id="a list as a key"),
    pytest.param("a: " + "x" * (2 << 20), id="bytes"),
    pytest.param("a: \ud800", id="half a surrogate"),
    pytest.param("a: \x00", id="NUL"),
]


@pytest.mark.parametrize("text", BOMBS)
def test_a_bomb_is_refused(text: str) -> None:
    with pytest.raises(yaml.YAMLError):
        load(text)


@pytest.mark.parametrize("text", BOMBS)
def test_the_error_about_a_bomb_names_the_file(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    for read in (load_kubeconfig, read_config):
        with pytest.raises(Invalid, match=str(path)) as caught:
            read(str(path))
        assert len(str(caught.value)) < 2000


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("{a: 1, b: [x, 2.5, null, true, ~]}", {"a": 1, "b": ["x", 2.5, None, True, None]}),
        ("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}", {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}}),
        ("a: &a {x: 1}\nb: &b {x: 2, y: 2}\nc: {<<: [*a, *b]}", None),
        ("[<<, =, yes, 0x10, '012', 1_000]", ["<<", "=", True, 16, "012", 1000]),
        ("a: &a [1]\nb: *a", {"a": [1], "b": [1]}),
    ],
)
def test_plain_values_are_those_of_pyyaml(text: str, value: Any) -> None:
    assert load(text) == (yaml.safe_load(text) if value is None else value)


def test_a_merge_takes_the_first_of_several() -> None:
    assert load("a: &a {x: 1}\nb: &b {x: 2, y: 2}\nc: {<<: [*a, *b]}")["c"] == {"x": 1, "y": 2}


def test_the_limits_count_what_aliases_expand_to() -> None:
    text = "a: &a [1, 2, 3]\nb: [*a, *a]"
    assert load(text, Limits(values=20))
    with pytest.raises(RefusedYaml, match="too large"):
        load(text, Limits(values=10))


def test_a_key_that_is_given_twice() -> None:
    assert load("a: 1\na: 2") == {"a": 2}
    with pytest.raises(yaml.YAMLError, match="'a' is given twice"):
        load("a: 1\na: 2", Limits(unique_keys=True))


def test_no_more_of_a_file_is_read_than_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(yaml.YAMLError, match="larger than"):
        load_file(str(path))


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=20,
)


@given(PLAIN)
def test_what_pyyaml_writes_is_read_back(value: Any) -> None:
    found = load(yaml.safe_dump(value))
    assert found == value or (isinstance(value, float) and math.isclose(found, value))


@given(st.text(alphabet="-?:,[]{}#&*!|>'\"%@` \nab01<~.\t", max_size=40))
def test_any_text_is_a_plain_value_or_refused(text: str) -> None:
    try:
        load_all(text, Limits(size=100, values=50, depth=8))
    except yaml.YAMLError as error:
        assert len(str(error)) < 1000
