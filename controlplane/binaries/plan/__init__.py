"""What one run of Go builds, and how long it still takes. Pure."""
