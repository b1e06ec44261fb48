"""Touches the world for the policy daemon: its socket, its metrics, its state file, what else is installed."""
