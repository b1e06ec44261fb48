"""The kubelet of nodewright."""

import os

# gRPC would print a line at every fork of the process (iptables-restore and others), and needs no fork support:
# children exec at once. It reads this when it is first imported.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
