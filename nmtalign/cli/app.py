"""`nmtalign`: where the command line begins, with hardly an import, so that Ctrl-C is heeded from the first moment."""

import os
import sys


def main() -> None:
    """Runs the command line and exits."""
    # MKL reads this at its first product (`nmtalign.core.devices.products_are_reproducible`).
    os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")
    try:
        from nmtalign.cli.commands import run
    except KeyboardInterrupt:
        sys.stderr.write("nmtalign: error: interrupted\n")
        sys.exit(130)
    run()
