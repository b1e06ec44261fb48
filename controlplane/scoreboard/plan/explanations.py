"""Why the makers differ in a spec: explanations.txt, a sentence for each spec."""

from __future__ import annotations

from collections.abc import Mapping

from nodelib.errors import Invalid


def read(text: str) -> Mapping[str, str]:
    """`name of the spec | sentence`, one a line. Raises Invalid for another line, or a spec that is there twice."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, bar, sentence = line.rpartition(" | ")
        if not bar or not sentence.strip() or name in found:
            raise Invalid(f"line {number} is not `spec | sentence`, or says it twice: {line!r}", obj="explanations.txt")
        found[name] = sentence.strip()
    return found
