"""Which values are secrets because of the name before them: `password: x`, `--token x`, `DB_PASS=x`. Pure."""

from __future__ import annotations

import re

_WORD = r"(?:passw|passphrase|passwd|pwd|secret|token|credential|api[_-]?key|access[_-]?key|private[_-]?key|key-data)"
# What such a name may go on with and is then no secret, but where one is, how long it lives, what it is called.
_HARMLESS = re.compile(r"(?i)(?:name|ref|refs|file|path|dir|ttl|type|mode|webhook|seconds|version|count|policy|env)$")
_IS_SECRET = re.compile(rf"(?i)(?:{_WORD}[\w.-]{{0,60}}|(?:^|[._-])auth)$")
_IS_VARIABLE = re.compile(r"(?i)pass|pwd|_pw|pw$|secret|token|cred|key|auth|dsn|conn|salt|session|cookie|jwt|priv")
_IS_OPTION = re.compile(rf"(?i)--?[\w-]{{0,60}}{_WORD}[\w-]{{0,60}}")
# No part of it may be tried at many places: text comes from pods too. Values are no part of it, as one may be long and
# have many such names in it.
_NAMED = re.compile(
    rf"""(?ix)
    (?P<key> {_WORD} [\w.-]{{0,60}} | (?<=["']) auth (?=["'\\]) | \bauth (?=\s{{0,4}}=\s{{0,4}}") )
    (?P<sign> \\?["']? [^\S\n]{{0,8}} [=:] [^\S\n]{{0,8}} | (?<=\w) [ ]{{1,4}} (?=[^\s=:-]) )
    (?=\S)
    """
)
_QUOTED = re.compile(
    r"""(?x)
    \\" (?: [^"\\\n] | \\[^"\n] )* (?: \\" )?
    | " (?: [^"\\\n] | \\. )* "?
    | ' (?: [^'\n] | '' )* '?
    """
)
_WORD_OR_MORE = re.compile(r"\S+")
_HEAD = 64  # characters of a value by which it is no secret
_JSON_VALUE = re.compile(r"[^\s,}\]]*")
_PLAIN = re.compile(r"""(?i)["']?(?:true|false|null|none|)["']?""")
_COUNT = re.compile(r"\d{1,5}")
_BEGINS_LINE = re.compile(r"[\s\w.+-]{0,80}")


def is_secret(key: str) -> bool:
    """Whether the value of this key is one."""
    return _IS_SECRET.search(key) is not None and _HARMLESS.search(key) is None


def is_variable(name: str) -> bool:
    """Whether the variable (or HTTP header) of this name may hold one; people name them in many ways."""
    return _IS_VARIABLE.search(name) is not None


def is_option(word: str) -> bool:
    """Whether the word after this one is its value, and a secret."""
    return _IS_OPTION.fullmatch(word) is not None and _HARMLESS.search(word) is None


def without(text: str, out: str) -> str:
    """The text with `out` in the place of each such value."""
    parts, done, at, ends = [], 0, 0, _Ends(text)
    while found := _NAMED.search(text, at):
        at = found.end()
        end = _end(found, ends)
        if end > at:
            parts += [text[done:at], out]
            done = at = end
    return "".join((*parts, text[done:]))


class _Ends:
    """Where words and lines end: looked for once, however many names are in one."""

    def __init__(self, text: str) -> None:
        self._text, self._word, self._line = text, 0, 0

    def word(self, at: int) -> int:
        if at >= self._word:
            found = _WORD_OR_MORE.match(self._text, at)
            self._word = found.end() if found is not None else at
        return self._word

    def line(self, at: int) -> int:
        if at >= self._line:
            end = self._text.find("\n", at)
            self._line = end if end >= 0 else len(self._text)
        return self._line


def _end(found: re.Match[str], ends: _Ends) -> int:
    """Where the secret ends, 0 when there is none."""
    text, key, sign, start = found.string, found["key"], found["sign"], found.end()
    optional = not sign.strip(" ")
    if _HARMLESS.search(key) or (optional and not _is_after_dashes(found)):
        return 0
    quoted, whole_line = _QUOTED.match(text, start), False
    if quoted is not None:
        end = quoted.end()
    elif '"' in sign:  # a key of JSON, and neither a text nor the rest of a line
        end = _JSON_VALUE.match(text, start).end()  # type: ignore[union-attr]  # it may be empty
    elif not optional and (":" in sign or _begins_line(found)):
        # Without quotes a value may hold blanks where it is all the rest of a line: in YAML, in files of variables.
        end, whole_line = ends.line(start), True
    else:
        end = ends.word(start)
    head = text[start : min(end, start + _HEAD)]
    head = head.rstrip() if whole_line else head
    if end - start <= _HEAD and _PLAIN.fullmatch(head):
        return 0
    if _COUNT.fullmatch(head.partition(" ")[0]) and not key.lower().startswith(("pass", "pwd")):
        return 0
    return end


def _begins_line(found: re.Match[str]) -> bool:
    line = found.string.rfind("\n", max(0, found.start() - 100), found.start()) + 1
    return found.start() - line <= 80 and _BEGINS_LINE.fullmatch(found.string, line, found.start()) is not None


def _is_after_dashes(found: re.Match[str]) -> bool:
    """Whether the name is that of an option, as in `--password x`."""
    before = found.string[max(0, found.start() - 64) : found.start()].rpartition(" ")[2].rpartition("\n")[2]
    return before.startswith("-")
