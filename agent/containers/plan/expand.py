"""$(VAR) references in commands, arguments, environment values and subPathExpr.

Semantics of third_party/forked/golang/expansion: "$$" is a literal "$", a reference to an
unknown name stays as it is written, an opening without its close is plain text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nodelib.errors import Invalid


def expand(text: str, lookup: Callable[[str], str]) -> str:
    """`text` with every reference replaced by lookup(name)."""
    out: list[str] = []
    at = 0
    while True:
        found = text.find("$", at)
        if found < 0 or found + 1 == len(text):
            return "".join(out) + text[at:]
        out.append(text[at:found])
        following = text[found + 1]
        close = text.find(")", found + 2) if following == "(" else -1
        if following == "$":
            out.append("$")
            at = found + 2
        elif following == "(" and close > 0:
            out.append(lookup(text[found + 2 : close]))
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


def expand_all(texts: list[str] | None, env: Mapping[str, str]) -> list[str]:
    """A command or argument list, expanded."""
    lookup = lookup_in(env)
    return [expand(text, lookup) for text in texts or []]


def expand_sub_path(expression: str, env: Mapping[str, str]) -> str:
    """A subPathExpr. Raises Invalid when a name in it is unknown or empty: the path must not become shorter."""
    missing: set[str] = set()

    def lookup(name: str) -> str:
        value = env.get(name, "")
        if not value:
            missing.add(name)
        return value

    expanded = expand(expression, lookup)
    if missing:
        raise Invalid(
            f"missing value for {', '.join(sorted(missing))}",
            step=f"subPathExpr {expression!r}",
            action="Give the container an environment variable of that name with a value.",
        )
    return expanded
