"""Where this project lies: daemons are started from it, tests and lists are found in it."""

from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
