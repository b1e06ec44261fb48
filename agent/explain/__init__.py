"""Explains why a pod is in its state: what it waits for, what to do about it, why its containers ended, what it costs.

An addition to upstream's kubelet; the closest counterpart is the output of `kubectl describe pod`. work.py collects
what the node knows of a pod, plan/ turns it into an Explanation (model.py). The server answers with it under /why,
and `nodewright why` (cli/why/) prints it. Start with plan/explain.py.
"""
