"""A cluster's record on disk, requests to its demo, and the bare control plane for measurements."""
