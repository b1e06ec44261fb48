"""What upstream's kubelet and kube-proxy can be told, and what is done with it here. Data, and readers of it.

`facts/` is generated from upstream's modules: every feature gate, field and flag with its stage and default
(`python -m controlplane.compatibility facts`). `answers/` is written by hand: what each of them does here. The agent
and the proxy check feature gates by these files and take from them what they say about settings that they do not obey,
and docs/compatibility.md is made of them, so the three cannot differ. Upstream's counterpart of gates.py is
k8s.io/component-base/featuregate. Open answers.py first.
"""
