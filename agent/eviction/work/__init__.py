"""The rounds of the eviction manager, and what is freed before a pod is evicted."""
