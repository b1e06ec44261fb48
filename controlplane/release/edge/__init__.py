"""Reads what a release is made of and writes its files."""
