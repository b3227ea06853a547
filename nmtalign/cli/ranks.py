"""Several processes on one command line: torchrun starts them, one of them speaks, and they end together."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from nmtalign.cli.common import say
from nmtalign.cli.stopping import REASONS
from nmtalign.config import Device

if TYPE_CHECKING:
    from nmtalign.training.distributed import World

_word_is_mine = False


def let_the_first_speak() -> None:
    """Waits a moment in all processes but the first, unless they have met and settled who speaks.

    What went wrong is most likely the same for all, and torchrun ends those that wait when the first has said it.
    """
    if not _word_is_mine and _several() and os.environ.get("RANK", "0") != "0":
        time.sleep(5)


def _several() -> bool:
    return os.environ.get("WORLD_SIZE", "1") != "1"


@contextlib.contextmanager
def joined(device: Device) -> Iterator["World"]:
    """The processes that train together; whatever ends one of them ends all, and one of them says why."""
    global _word_is_mine
    if _several():
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")  # no stack of the engine's when a connection breaks
        signal.signal(signal.SIGTERM, _wait_for_the_reason)
    from nmtalign.training.distributed import EndedTogetherError, is_said_for_all, open_world

    try:
        world = open_world(device, _end)
        with world.together():
            yield world
            if world.size > 1:
                _ignore_signals()
            world.close()
    except EndedTogetherError as error:
        raise typer.Exit(error.exit_code) from None
    except BaseException as error:
        _word_is_mine = is_said_for_all(error)
        raise


def _end(line: str, code: int) -> None:
    """Ends this process at once, wherever its main thread waits."""
    if display := sys.modules.get("nmtalign.cli.display"):
        display.let_go()
    if line:
        say(f"error: {line}")
    sys.stderr.flush()
    os._exit(code)


def _wait_for_the_reason(number: int, _: object) -> None:
    """torchrun ends all processes when one has died: a moment for the watch to say which."""
    time.sleep(3)
    raise SystemExit(128 + number)


def _ignore_signals() -> None:
    """The work is done; torchrun ends those that are a little later than the first to leave."""
    for number in REASONS:
        signal.signal(number, signal.SIG_IGN)
