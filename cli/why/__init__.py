"""What `why` says about pods, workloads, claims, Services and Nodes, from the agents and from the API server.

`sources.py` asks both; `judge.py` (pure) makes one explanation for each object, by way of a file for each kind
(`workloads.py`, `claims.py`, `ways.py`, `nodes.py`, `pods.py`); `show.py` prints it. The explanation of a pod is made
by the agent of its node, if that answers. `kubectl describe` is the closest counterpart. Start with `judge.py`.
"""
