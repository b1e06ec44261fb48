"""Switches one feature off at a time and asks the tests whether they notice.

`python -m tests.mutations [ID ...]` changes a copy of the tree, never the tree itself: `table/` says which text of
which file makes the feature go, and which tests should fail then. `--write` puts the answers into docs/mutations.md. It
takes about an hour for all of them, so it is run by hand, like the tests that are marked soak.
"""
