"""`nodewright why`: what a pod waits for, from its node's own record and from the API, whichever of them answers."""
