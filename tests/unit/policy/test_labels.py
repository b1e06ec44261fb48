"""Labels that are kept packed answer as a dictionary does, whatever is asked, in a sixth of its memory."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.model import Requirement, Selector
from policy.plan import parse
from policy.plan.labels import MOST, PackedLabels, among, kept
from tests.builders.policies import pod

# Few letters, so that keys are often the same, or the beginning of another one; and some of other lengths in UTF-8.
_TEXTS = st.text(st.sampled_from("ab./=é\U0001f600\ud800"), max_size=4)
_LABELS = st.dictionaries(_TEXTS, _TEXTS, max_size=200)
_ASKED = st.text(st.sampled_from("ab./=é\0\n"), max_size=6)


@given(_LABELS, st.lists(_ASKED, max_size=20))
def test_packed_labels_are_the_same_mapping(labels: dict[str, str], asked: list[str]) -> None:
    packed = PackedLabels(labels)
    assert dict(packed) == labels and len(packed) == len(labels)
    assert packed == labels and packed == PackedLabels(dict(reversed(labels.items())))
    for key in (*labels, *asked, *(f"{key}\0{value}" for key, value in labels.items())):
        assert (key in packed) == (key in labels)
        assert packed.get(key) == labels.get(key) and packed.get(key, "x") == labels.get(key, "x")
        if key in labels:
            assert packed[key] == labels[key]
        else:
            with pytest.raises(KeyError):
                packed[key]


@given(_LABELS, _LABELS)
def test_other_labels_are_not_equal(one: dict[str, str], other: dict[str, str]) -> None:
    assert (PackedLabels(one) == PackedLabels(other)) == (one == other)


_REQUIREMENTS = st.builds(
    Requirement, _ASKED | _TEXTS, st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]), st.frozensets(_TEXTS)
)


@given(_LABELS, st.lists(_REQUIREMENTS, max_size=4))
def test_selectors_fit_the_same(labels: dict[str, str], requirements: list[Requirement]) -> None:
    selector = Selector(tuple(requirements))
    assert selector.fits(PackedLabels(labels)) == selector.fits(labels)


@given(_LABELS, st.sets(_TEXTS, max_size=200))
def test_keys_that_are_in_both(labels: dict[str, str], keys: set[str]) -> None:
    for kind in (labels, PackedLabels(labels)):
        found = list(among(dict.fromkeys(keys).keys(), kind))
        assert len(found) == len(set(found)) and set(found) == keys & labels.keys()


@pytest.mark.parametrize("text", ["a\0b", "a\nb", "\0", "\n"])
def test_what_is_between_packed_labels_is_in_none(text: str) -> None:
    for labels in ({text: "x"}, {"x": text}):
        with pytest.raises(ValueError):
            PackedLabels(labels)
        many = {**{f"l{number}": "" for number in range(MOST)}, **labels}
        assert kept(many) == many, "kept all the same"


@pytest.mark.parametrize("count", [0, MOST, MOST + 1])
def test_many_labels_are_packed(count: int) -> None:
    labels = {f"l{number}": f"v{number}" for number in range(count)}
    assert kept(labels) == labels
    assert isinstance(kept(labels), PackedLabels) == (count > MOST)


@pytest.mark.parametrize("value", [None, 5, ["a"], {}], ids=str)
def test_what_is_no_label_becomes_text_as_it_always_did(value: object) -> None:
    for labels in ({"a": value}, {**{f"l{number}": "x" for number in range(MOST)}, "a": value}):
        assert kept(labels) == {key: str(text) for key, text in labels.items()}


def test_tens_of_thousands_of_labels_take_little_memory() -> None:
    """A dictionary took 120 bytes for each beside its text: 5.4 MB of every node for a pod that need not run."""
    obj = pod("evil", "10.0.0.66", labels={f"l{number:06}": f"v{number:06}" for number in range(40_000)})
    text = json.dumps(obj)
    size = len(json.dumps(obj["metadata"]["labels"]))
    tracemalloc.start()
    try:
        found = parse.pod(json.loads(text))
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(found.labels) == 40_000
    assert held < 1.5 * size, (held, size)
