"""What is served of a pod, and its encoding."""
