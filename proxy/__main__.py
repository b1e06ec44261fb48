import sys

from proxy.app import main

if __name__ == "__main__":
    sys.exit(main())
