"""One file for each part of the machine. Decides nothing."""
