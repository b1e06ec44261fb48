"""`python -m proxy`: the service proxy with kube-proxy's command line (`--help`)."""

import sys

from proxy.app import main

if __name__ == "__main__":
    sys.exit(main())
