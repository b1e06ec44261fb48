"""Settings: kube-proxy's command line and configuration file, read, checked and turned into what the rest needs.

Upstream's counterpart is cmd/kube-proxy/app/options.go with pkg/proxy/apis/config and its v1alpha1 defaults.
Start with `settings.py` (the frozen `Settings`); `file.py` and `flags.py` read the two sources, `derive.py` says what
follows from the settings, `effective.py` writes them back for /configz, `access.py` finds the API server.
"""
