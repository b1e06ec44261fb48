"""The node agent: registers this node and runs the pods that are bound to it, as the kubelet does.

Upstream's counterpart: cmd/kubelet and pkg/kubelet of k8s.io/kubernetes. Each folder is a room for one capability, with
model, plan, work and edge inside. Start with app.py (the life of the process), then build/agent.py (which parts there
are), then pods/ (the core).
"""

import os

# With fork support gRPC prints a line whenever a command is started (iptables-restore and others). It is not needed, as
# children exec at once. gRPC reads this when it is first imported.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")

# gRPC's new event engine hands what a client sends and gets to threads of its own. Without it each call of the runtime
# costs a quarter less CPU (docs/decisions.md, 0082).
os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_client")
