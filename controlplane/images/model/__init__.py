"""Images and recipes as values."""
