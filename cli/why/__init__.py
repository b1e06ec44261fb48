"""What `why` says about pods, from the records of their nodes and from the API server.

`sources.py` asks both, `judge.py` (pure) makes one explanation for each pod, `show.py` prints it. The explanations
themselves are made by the agent of the pod's node. `kubectl describe pod` is the closest counterpart. Start with
`judge.py`.
"""
