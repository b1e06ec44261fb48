"""`python -m tests.mutations [--rest] [--write] [ID ...]`: a line for each mutation.

The exit status is 1 when no test notices one of them.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
from collections.abc import Sequence

from tests.mutations.model import Mutation
from tests.mutations.page import noticed_by, rewritten, shown
from tests.mutations.run import PROJECT, verdicts
from tests.mutations.table import TABLE

PAGE = PROJECT / "docs" / "mutations.md"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("ids", nargs="*", metavar="ID", help="only these; * stands for any text (default: all)")
    parser.add_argument("--rest", action="store_true", help="only those that docs/mutations.md has no answer for")
    parser.add_argument("--write", action="store_true", help="put the answers into docs/mutations.md")
    asked = parser.parse_args(arguments)
    found, unnoticed = [], 0
    known = noticed_by(PAGE.read_text()) if asked.rest else {}
    for verdict in verdicts(one for one in _chosen(asked.ids) if one.id not in known):
        found.append(verdict)
        unnoticed += not verdict.noticed
        print(f"{verdict.mutation.id:32} {verdict.seconds:6.1f} s  {shown(verdict)}", flush=True)
        if asked.write:
            PAGE.write_text(rewritten(PAGE.read_text(), TABLE, found))
    print(f"{len(found) - unnoticed} of {len(found)} are noticed")
    return 1 if unnoticed else 0


def _chosen(patterns: Sequence[str]) -> list[Mutation]:
    chosen = [one for one in TABLE if not patterns or any(fnmatch.fnmatch(one.id, each) for each in patterns)]
    if not chosen:
        sys.exit(f"error: no mutation is called {' or '.join(patterns)}")
    return chosen


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
