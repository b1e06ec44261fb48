"""Keeps the rows up to date and sends each browser what changed."""
