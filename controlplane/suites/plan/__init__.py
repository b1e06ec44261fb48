"""Which tests a run selects, the command lines, and how JUnit reports are read. Pure."""
