"""Where this project lies: daemons are started from there, tests and lists are found there."""

from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
LAUNCHER = PROJECT / "nodewright"


def is_checkout() -> bool:
    """Whether this runs from a source tree (or the tree in the Debian package), and not from what pip installed."""
    return LAUNCHER.is_file()
