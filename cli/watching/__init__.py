"""What `status --watch` and `why --watch` have in common: they follow something, and show each change.

`changes.py` decides what a change is, `collections.py` watches the API, `follow.py` asks and shows at a bounded rate,
`screens.py` has the three ways to show it. kubectl's counterpart is `kubectl get --watch` (k8s.io/kubectl/pkg/cmd/get).
Start with `changes.py`.
"""
