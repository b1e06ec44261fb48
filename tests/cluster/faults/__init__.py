"""Faults at every edge of a node, and what must hold while they last.

promises.py has the words: a Fault, where it strikes, what is said of it, and how soon all is well again. tables.py
lists them; test_faults.py is the one test that plays each of them. The edges: api_edge.py (a proxy between a node's
agent and the API server), the runtime's (tests/cri_proxy.py), kernel_edge.py (system calls that fail), process_edge.py
(daemons killed or stopped, a clock that steps). Every choice at random comes from the fault's seed.
"""
