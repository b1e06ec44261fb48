"""What the generated files say. Pure."""
