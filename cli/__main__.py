"""`python -m cli`: the command line. Commands are imported when they run, so that --help is quick."""

import gc
import sys


def main() -> int:
    """Run the command line."""
    # What is imported stays: looking for garbage in it took an eighth of the time of a short command.
    gc.set_threshold(100_000)
    try:
        from cli.app import main

        return main()
    finally:
        gc.freeze()  # the interpreter would look through everything once more before it ends


if __name__ == "__main__":
    sys.exit(main())
