"""`python -m cli`: the command line. Commands are imported when they run, so that --help is quick."""

import gc
import sys

_SHORT = 150_000  # objects: a command that answers once makes 50,000 to 100,000
_USUAL = (700, 10, 10)  # CPython's own thresholds


def main() -> int:
    """Run the command line."""
    # What is imported stays: looking for garbage in it took an eighth of the time of a short command.
    gc.set_threshold(_SHORT)
    gc.callbacks.append(_goes_on)
    try:
        from cli.app import main

        return main()
    finally:
        gc.freeze()  # the interpreter would look through everything once more before it ends


def _goes_on(phase: str, _: dict[str, int]) -> None:
    """After the first collection: a command that makes so many objects may run for days, as `view` and `--watch` do."""
    if phase == "stop":
        gc.callbacks.remove(_goes_on)
        gc.freeze()
        gc.set_threshold(*_USUAL)


if __name__ == "__main__":
    sys.exit(main())
