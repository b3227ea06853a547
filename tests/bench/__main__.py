"""`python tests/bench COMMAND ...`, from any folder and with nothing installed but what the model needs."""

import os
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
sys.path[0] = str(TESTS)  # was this folder, whose modules are those of the package `bench`
sys.path.insert(1, str(TESTS.parent))
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")  # as the command line does, before the first product

from bench.cli import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
