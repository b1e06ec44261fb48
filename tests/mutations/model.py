"""One feature, and the change that switches it off."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutation:
    """`before` is in `file` exactly once; with `after` in its place the program runs, but ignores the feature.

    `tests`: paths below tests/, of which one must fail then. They are run in this order, until one fails.
    """

    id: str
    feature: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]

    def applied(self, text: str) -> str:
        """The file's text without the feature. Raises ValueError where `before` is not there exactly once."""
        count = text.count(self.before)
        if count != 1:
            raise ValueError(f"{self.id}: {self.before!r} is {count} times in {self.file}, not once")
        return text.replace(self.before, self.after)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the tests said without the feature. `noticed`: the first test that failed, "" when all of them passed.

    `problem`: why there is no answer, for example that the tests fail with the feature, too.
    """

    mutation: Mutation
    noticed: str = ""
    problem: str = ""
    seconds: float = 0.0
