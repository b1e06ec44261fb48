"""This machine: namespaces, links, routes, packet rules, cgroups, locks and long commands. It knows no cluster.

edge/nsinit.py makes the namespaces of a node, edge/netlink.py the links of model.py, edge/cgroups.py the cgroups.
Counterparts elsewhere: ip-netns(8), nsenter(1), github.com/opencontainers/cgroups. Open model.py first.
"""
