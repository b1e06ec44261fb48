"""Where this project lies: daemons are started from there, tests and lists are found there."""

from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
