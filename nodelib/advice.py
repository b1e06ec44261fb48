"""Advice with commands in `backquotes`, which users paste into a shell: what others wrote is one quoted word there."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from string import Formatter

from nodelib.text import one_line

_LONGEST = 253  # bytes of one word: no name of Kubernetes is longer


def filled(advice: str, words: Mapping[str, object]) -> str:
    """`advice` with each {name} replaced by its word, which is quoted for the shell within backquotes."""
    found, inside = [], False
    for text, name, _, _ in Formatter().parse(advice):
        found.append(text)
        inside ^= text.count("`") % 2 == 1
        if name is not None:
            word = one_line(str(words[name]), _LONGEST)
            # A backquote would end what is marked as a command, and begin one of its own for a reader.
            word = word.replace("`", "'")
            if inside:
                word = shlex.quote(word.lstrip("-"))  # nor is it an option
            found.append(word)
    return "".join(found)
