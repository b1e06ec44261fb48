"""What the daemon follows in the API: the objects of NetworkPolicies, and those of ClusterNetworkPolicies."""
