"""Collecting stats on demand, and measuring the files that pods use."""
