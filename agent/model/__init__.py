"""What the agent knows and decides on, as frozen values: pods and containers, the node, probes, resizes, statistics."""
