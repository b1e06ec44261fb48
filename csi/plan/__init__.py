"""What a request asks for, what answers it, and whether there is room. Pure."""
