"""One text with the licences of many components: equal texts once, with all that they apply to. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from controlplane.release.model import Notice

_RULE = "=" * 100
_TEXTS = re.compile(r"(?:licen[cs]es?|copying|notice|copyright|patents|unlicense|authors)(?:[.-].*)?", re.IGNORECASE)


def is_notice(name: str) -> bool:
    """Whether a file with this name, at the root of a package's source, has its licence or whom to name."""
    return _TEXTS.fullmatch(name) is not None


def text(title: str, notices: Iterable[Notice]) -> str:
    """The whole file. Components without a text are listed at its end."""
    groups: dict[str, list[str]] = {}
    without: list[str] = []
    for notice in sorted(notices, key=lambda one: one.component):
        for name, content in notice.texts:
            groups.setdefault(content.strip(), []).append(f"{notice.component} ({name})")
        if not notice.texts:
            without.append(notice.component)
    parts = [title, ""]
    for content, users in sorted(groups.items(), key=lambda one: one[1]):
        parts += [_RULE, *sorted(set(users)), _RULE, "", content, ""]
    if without:
        parts += [_RULE, "No licence text was found with these; see their sources:", *without, ""]
    return "\n".join(parts)
