"""Decides which spec belongs to which part, and what the pages say. Pure."""
