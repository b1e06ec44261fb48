"""Frozen values: pulls, their credentials and records, and the report of what holds each image."""
