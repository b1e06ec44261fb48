"""Collect what the rules need, write the files that a container is given, and build the configurations."""
