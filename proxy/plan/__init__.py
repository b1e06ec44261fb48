"""Decisions of the proxy, as pure functions: no I/O, no clock, no event loop, no logging.

Upstream's counterpart is the shared logic of pkg/proxy: change trackers, topology.go, serviceport.go, conntrack.
`tracker.py` collects Services and EndpointSlices, `topology.py` chooses endpoints, and each mode has a folder that
turns the result into rules. Start with `tracker.py`.
"""
