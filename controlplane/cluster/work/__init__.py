"""Makes, repairs, shows and removes the parts of a cluster."""
