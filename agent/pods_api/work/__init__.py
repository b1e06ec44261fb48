"""The answers, and the feed of changes."""
