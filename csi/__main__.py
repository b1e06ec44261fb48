"""`python -m csi`: the CSI driver of this node (`--help`)."""

import sys

from csi.app import main

if __name__ == "__main__":
    sys.exit(main())
