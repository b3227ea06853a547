"""`python tests/bench COMMAND ...`, from any folder and with nothing installed but what the model needs."""

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
sys.path[0] = str(TESTS)  # was this folder, whose modules are those of the package `bench`
sys.path.insert(1, str(TESTS.parent))

from bench.cli import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
