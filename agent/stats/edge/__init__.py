"""Files of cgroups, /proc and file systems, read as values of the model."""
