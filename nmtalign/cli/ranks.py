"""`nmtalign train` under torchrun: one process reports an error, and all end."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from nmtalign.cli.stopping import REASONS
from nmtalign.settings.definition import Device

if TYPE_CHECKING:
    from nmtalign.training.distributed import World

_connected = False


def let_the_first_speak() -> None:
    """Waits in all processes but the first, unless they are connected and have agreed which one reports the error.

    An error at the start is most likely the same in all processes. torchrun ends those that wait when the first one
    has reported it.
    """
    if not _connected and _several() and os.environ.get("RANK", "0") != "0":
        time.sleep(5)


def _several() -> bool:
    return os.environ.get("WORLD_SIZE", "1") != "1"


@contextlib.contextmanager
def joined(device: Device) -> Iterator["World"]:
    """The processes that train together, or this one; an error in one of them ends all, and is reported once."""
    global _connected
    if _several():
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")  # no C++ stack on stderr when a connection breaks
    from nmtalign.training.distributed import FailedElsewhereError, open_world

    try:
        world = open_world(device)
        _connected = world.size > 1
        with world.together():
            yield world
            world.close()
    except FailedElsewhereError as error:
        raise typer.Exit(error.exit_code) from None
    finally:
        if _several():  # torchrun ends the others when one has ended; this process keeps its own exit code
            for number in REASONS:
                signal.signal(number, signal.SIG_IGN)
