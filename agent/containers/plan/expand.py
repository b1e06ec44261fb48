"""$(VAR) references in commands, arguments, environment values and subPathExpr.

Semantics of third_party/forked/golang/expansion: "$$" is a literal "$", a reference to an
unknown name stays as it is written, an opening without its close is plain text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nodelib.errors import Invalid

# Linux starts no process with more, whatever its limits are (bprm_stack_limits of fs/exec.c).
MOST_TEXT = 6 * 1024 * 1024
_LONGEST_PATH = 4096  # that a kernel takes (PATH_MAX)
_VARIABLE = 256  # characters that a variable counts for besides its text: 24,000 of them are the most


class Budget:
    """How much text the references of one container, or of one path, may still make.

    A few variables that name each other twice, or an object that many references name, make more text than a machine
    has memory. Upstream has no limit.
    """

    def __init__(self, most: int = MOST_TEXT) -> None:
        self._most = self._left = most

    def variable(self, name: str, value: str) -> None:
        """One more variable of the environment. Raises Invalid when there was not enough left for it."""
        self.take(name)
        self.take(value, _VARIABLE)

    def take(self, text: str, beside: int = 0) -> str:
        """The same text. Raises Invalid when there was not enough left for it and what it costs beside its length."""
        self._left -= len(text) + beside
        if self._left < 0:
            raise Invalid(
                f"variables and references make more than {self._most} characters of text",
                step="environment, command and arguments",
                action="Refer to less, or set enableServiceLinks to false: such a container could not be started.",
            )
        return text


def expand(text: str, lookup: Callable[[str], str], budget: Budget | None = None) -> str:
    """`text` with every reference replaced by lookup(name). Raises Invalid when they make more than `budget`."""
    budget = budget or Budget()
    out: list[str] = []
    at, last_close = 0, text.rfind(")")
    while True:
        found = text.find("$", at)
        if found < 0 or found + 1 == len(text):
            return "".join(out) + text[at:]
        out.append(text[at:found])
        following = text[found + 1]
        close = text.find(")", found + 2) if following == "(" and found < last_close else -1
        if following == "$":
            out.append("$")
            at = found + 2
        elif following == "(" and close > 0:
            out.append(budget.take(lookup(text[found + 2 : close])))
            at = close + 1
        else:
            out.append("$" + following)
            at = found + 2


def lookup_in(*maps: Mapping[str, str]) -> Callable[[str], str]:
    """Look in one map after the other; an unknown reference is left as written."""

    def lookup(name: str) -> str:
        for known in maps:
            if name in known:
                return known[name]
        return f"$({name})"

    return lookup


def expand_all(texts: list[str] | None, env: Mapping[str, str], budget: Budget | None = None) -> list[str]:
    """A command or argument list, expanded. Raises Invalid when its references make more than `budget`."""
    lookup, budget = lookup_in(env), budget or Budget()
    return [expand(text, lookup, budget) for text in texts or []]


def expand_sub_path(expression: str, env: Mapping[str, str]) -> str:
    """A subPathExpr. Raises Invalid when it becomes too long, or when a name in it is unknown or empty: the path must
    not become shorter.

    A pod has room for thousands of them, each of which may name a variable of a megabyte many times.
    """
    missing: set[str] = set()

    def lookup(name: str) -> str:
        value = env.get(name, "")
        if not value:
            missing.add(name)
        return value

    expanded = expand(expression, lookup, Budget(_LONGEST_PATH))
    if missing:
        raise Invalid(
            f"missing value for {', '.join(sorted(missing))}",
            step=f"subPathExpr {expression!r}",
            action="Give the container an environment variable of that name with a value.",
        )
    return expanded
