"""What is decided here is pure: no I/O, no clock, no loop, no logging."""
