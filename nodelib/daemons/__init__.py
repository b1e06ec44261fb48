"""What the daemons of a node have in common: their start and end, flags, log, name, memory, ports for health.

Upstream's counterparts are k8s.io/component-base and coreos/go-systemd. Start with `program.py`.
"""
