"""Pods that come from manifests: decoded, checked, defaulted, named; and their mirror pods. All pure."""
