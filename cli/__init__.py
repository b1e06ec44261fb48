"""The commands: the only place, with the composition roots, that knows all the other packages."""
