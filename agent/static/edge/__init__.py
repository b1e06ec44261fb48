"""The manifest directory and URL as they are on the machine and the network."""
