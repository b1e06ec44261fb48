"""`python -m policy`: the network policy daemon (`--help`)."""

import sys

from policy.app import main

if __name__ == "__main__":
    sys.exit(main())
