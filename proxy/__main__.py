"""`python -m proxy`: the service proxy with kube-proxy's command line (`--help`)."""

import sys

from nodelib.daemons.process_name import answer_to
from proxy.app import main

if __name__ == "__main__":
    answer_to("kube-proxy", sys.argv[1:])
    sys.exit(main())
