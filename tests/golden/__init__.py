"""Dumps that must not change by accident, and the cases that they are made of."""
