"""Request attributes and review bodies, and the contents of /statusz and /flagz."""
