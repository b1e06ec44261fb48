"""Startup, readiness and liveness probes: when to send them, how, and what the answers mean.

Upstream: pkg/kubelet/prober and pkg/probe. Open plan.py first for the rules; work.py keeps the state of every
probe, due_times.py the queue of due times, places.py who waits for whom, and edge.py makes one attempt. The pod worker
asks through Probes of agent/pods/ports.py.
"""
