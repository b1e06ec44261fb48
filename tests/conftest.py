"""Settings for every test."""

from __future__ import annotations

from hypothesis import settings

# Pass or fail never depends on how fast the machine is.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")
