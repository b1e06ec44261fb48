"""Request the first certificate (bootstrap) and keep certificates valid (rotation)."""
