"""Whether processes here may protect themselves from the OOM killer; without CAP_SYS_RESOURCE they may not."""

from __future__ import annotations


def may_lower_score() -> bool:
    """Found out by trying: capabilities are only one of several reasons (user namespaces, LSMs)."""
    path = "/proc/self/oom_score_adj"
    with open(path, encoding="ascii") as file:
        before = int(file.read())
    try:
        with open(path, "w", encoding="ascii") as file:
            file.write(str(max(-1000, before - 1)))
        with open(path, "w", encoding="ascii") as file:
            file.write(str(before))
    except OSError:
        return False
    return True
