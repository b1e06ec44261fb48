"""Stand-ins for systemd on a node that has none: systemctl, systemd-run, and systemd and logind on a system bus.

kubeadm and upstream's e2e_node suite call them; their units are the programs of the node's supervisor. Each file is
executed with `python -m`. Counterparts: systemctl(1), systemd-run(1), org.freedesktop.systemd1(5). Open systemctl.py
first; plan.py holds the configuration of the bus.
"""
