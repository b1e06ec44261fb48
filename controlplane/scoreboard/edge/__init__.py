"""The suites' lists, this machine, and the results on disk."""
