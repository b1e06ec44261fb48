"""`python -m loadbalancer`: the load balancer daemon of a node (`--help`)."""

import sys

from loadbalancer.app import main

if __name__ == "__main__":
    sys.exit(main())
