"""Our policy daemon beside others, on one kernel and one API server: `python -m tests.bench.policy_peers` as root.

Each maker has a node of its own: a network namespace with a bridge, on which are the pods' addresses and a client. What
is measured is real packets of the client, by the same program for all (`prober.py`, `tests/bench/flow_peer.py`). Start
with `measure.py`.
"""
