"""From the bytes of a manifest to pods that are valid and complete."""
