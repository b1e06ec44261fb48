"""What the Node says, and in which order pods are stopped at a shutdown."""
