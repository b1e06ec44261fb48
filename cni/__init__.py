"""The pod network: a CNI plugin (spec 1.1.0), its node server, and the node's half (bridge, routes, masquerade)."""
