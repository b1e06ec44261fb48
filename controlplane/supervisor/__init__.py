"""Keeps the daemons of a node or of the control plane running where there is no systemd.

`python -S -m controlplane.supervisor DIR` is the process itself (work.py); edge/units.py starts and queries it from
outside, plan.py decides what to stop and start, edge/procfs.py reads its state. Counterpart: systemd(1). Open work.py
first.
"""
