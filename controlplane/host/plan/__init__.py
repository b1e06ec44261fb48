"""What join checks and writes, what install writes, and what is in the Debian package. Pure."""
