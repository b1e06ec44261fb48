"""What each command does: one module a command, with the command's name.

Each has a `run()` that `cli/options` calls with parsed options; it calls controlplane, explain, why or bench, prints
the answer and sets the exit status. They are imported only when they run, so that --help stays quick.
kind's counterpart is pkg/cmd in kubernetes-sigs/kind. Start with `up.py`.
"""
