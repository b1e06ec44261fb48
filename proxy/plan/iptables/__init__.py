"""The iptables mode: chains and rules with the names, comments and order of upstream's pkg/proxy/iptables.

Start with `sync.py`, which plans the transactions of a full and a partial sync. `ports.py` has the rules of one
Service port, `fixed.py` those that depend on no Service, `names.py` upstream's chain names.
"""
