"""The pod network: a CNI plugin (spec 1.1.0), its server on the node, and the node's half (bridge, routes, firewall).

Upstream's counterparts are the bridge, host-local, portmap and bandwidth plugins of containernetworking/plugins, and
kindnet or flannel for the routes. Start with `operations.py`: ADD, DEL, CHECK and GC, each as store, plan and apply.
`app.py` puts a node's network together, `daemon.py` keeps the node's half, `shim` is what the runtime executes.
"""
