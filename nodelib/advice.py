"""Advice by the reason and the text of an error.

It has commands in `backquotes`, which users paste into a shell: what others wrote is one quoted word there. A pod
chooses the words of some errors, so that patterns, which may take cubic time, are searched for only at both ends of
long ones.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from string import Formatter

from nodelib.text import one_line

_ENDS = 1024, 512  # characters of a message in which patterns are searched for, from its beginning and from its end
_LONGEST = 253  # bytes of one word: no name of Kubernetes is longer


@dataclass(frozen=True, slots=True)
class Rule:
    """`reasons` is empty for a rule that holds for every reason. Groups of `pattern` are words of the advice."""

    reasons: frozenset[str]
    pattern: re.Pattern[str]
    advice: str


def rule(reasons: str, pattern: str, advice: str) -> Rule:
    """`reasons` with blanks between them; `pattern` is searched for in the message, in either case."""
    return Rule(frozenset(reasons.split()), re.compile(pattern, re.IGNORECASE), advice)


def advised(rules: Iterable[Rule], reason: str, message: str, words: Mapping[str, object]) -> str:
    """The advice of the first rule that fits, filled with `words`; "" when there is nothing to add to the message."""
    first, last = _ENDS
    if len(message) > first + last:
        message = f"{message[:first]}\n{message[-last:]}"
    for one in rules:
        found = one.pattern.search(message) if not one.reasons or reason in one.reasons else None
        if found is not None:
            return filled(one.advice, {**words, **found.groupdict("")})
    return ""


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
