"""`python -m controlplane.compatibility facts|page`: write the generated files into this tree."""

from __future__ import annotations

import sys
from pathlib import Path

from controlplane.cluster.edge.roots import cache_root
from controlplane.compatibility.sources import declared_metrics
from controlplane.compatibility.work import FACTS, FEATURES, PAGE, compatibility_page, features_page, upstream_facts

_USAGE = "Usage: python -m controlplane.compatibility facts|page"


def main(arguments: list[str]) -> int:
    """Return the exit status: 2 for a wrong command line."""
    if arguments == ["facts"]:
        cache = Path(cache_root())
        found = upstream_facts(cache, lambda line: print(line, file=sys.stderr))
        for name, text in {**found, "metrics": declared_metrics(cache)}.items():
            (FACTS / f"{name}.json").write_text(text, encoding="utf-8")
    elif arguments == ["page"]:
        PAGE.write_text(compatibility_page(), encoding="utf-8")
        FEATURES.write_text(features_page(), encoding="utf-8")
    else:
        print(_USAGE, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
