"""Names of specs as a tree of words: thousands of them share long beginnings.

A spec's name is the path to its leaf, joined by blanks. Where a name is the beginning of others, it is the leaf "".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def fold(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """The tree; a leaf is anything but a dict. A node has several children, so no path is longer than it must be."""
    return _folded([(name.split(" "), leaf) for name, leaf in leaves.items()], 0)


def _folded(rows: list[tuple[list[str], Any]], at: int) -> dict[str, Any]:
    by_word: dict[str | None, list[tuple[list[str], Any]]] = {}
    for row in rows:
        by_word.setdefault(row[0][at] if at < len(row[0]) else None, []).append(row)
    found: dict[str, Any] = {}
    for word, those in by_word.items():
        words, leaf = those[0]
        if word is None:
            found[""] = leaf
        elif len(those) == 1:
            found[" ".join(words[at:])] = leaf
        else:
            end = at + 1
            while all(len(one) > end for one, _ in those) and len({one[end] for one, _ in those}) == 1:
                end += 1
            found[" ".join(words[at:end])] = _folded(those, end)
    return found


def unfold(tree: Mapping[str, Any], before: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every name with its leaf."""
    for words, below in tree.items():
        path = (*before, words) if words or not before else before
        if isinstance(below, dict):
            yield from unfold(below, path)
        else:
            yield " ".join(path), below
