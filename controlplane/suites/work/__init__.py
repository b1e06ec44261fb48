"""Runs the suites and reads their reports."""
