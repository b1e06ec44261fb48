"""This machine's facts, systemd-logind and the lock file."""
