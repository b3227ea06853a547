"""`python -m nmtalign.cli.job train ...`: a subcommand for another process, that ends when it does, however that is.

The other one holds the pipe that is this one's stdin open; once it is closed, SIGTERM is sent, as by a person.
"""

import os
import signal
import threading

from nmtalign.cli.app import main

_STDIN = 0


def _end_with_parent() -> None:
    while os.read(_STDIN, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    main()
