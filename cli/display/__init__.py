"""Everything that commands show while they work, and the tables they end with.

`steps.py` shows the progress of parallel steps (implements controlplane.progress.Progress), `terminal.py` makes
consoles and tables. kind's counterpart is pkg/internal/cli/status.go in kubernetes-sigs/kind. Start with `steps.py`.
"""
