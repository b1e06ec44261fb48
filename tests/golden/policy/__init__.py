"""Whole tables of network policies as text."""
