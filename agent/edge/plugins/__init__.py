"""What speaks to plugins on this node: their registration, CSI drivers, device plugins, readers of podresources."""
