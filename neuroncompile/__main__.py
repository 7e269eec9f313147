"""The process: `neuroncompile`, and `python -m neuroncompile`."""

import gc

# Importing makes objects that stay. Looking for cycles among them, then and once more when the
# interpreter ends, is a tenth of what a hit costs.
gc.set_threshold(100_000, 10, 10)

from neuroncompile.cli import main  # noqa: E402 - after the threshold


def entry() -> int:
    """Run the command line as its own process and return the exit code."""
    try:
        code = main()
    except KeyboardInterrupt:  # once more, while the first one was being handled
        code = 130
    gc.freeze()
    return code


if __name__ == "__main__":
    raise SystemExit(entry())
