"""Signals, thresholds, the ranking of pods, and what an evicted pod says."""
