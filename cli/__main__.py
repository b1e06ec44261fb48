"""`python -m cli`: the command line. Commands are imported when they run, so that --help is quick."""

import sys

from cli.app import main

if __name__ == "__main__":
    sys.exit(main())
