"""What kubeadm is given: its configuration, its commands on a node, a pod network. Pure."""
