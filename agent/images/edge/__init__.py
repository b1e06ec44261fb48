"""containerd's content service, credential provider plugins, and the registry logins of the node."""
