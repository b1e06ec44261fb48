"""What is in a release: names, metadata, lists. Pure."""
