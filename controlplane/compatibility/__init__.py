"""Makes nodelib/upstream/facts and docs/compatibility.md: `python -m controlplane.compatibility facts|page`.

The facts come from programs in upstream/, linked with what upstream's kubelet and kube-proxy are linked with, which
ask its registries, and from a look at which packages read a feature gate. Which metrics the kubelet declares is read
from its sources. Open plan/facts.py first.
"""
