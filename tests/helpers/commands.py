"""The commands of nmtalign, run in this process; errors are raised."""

import contextlib
import io
from collections.abc import Mapping
from typing import Any

from nmtalign.cli.app import COMMANDS as NAMES
from nmtalign.cli.options import load_command

COMMANDS: Mapping[str, Any] = {name: load_command(name) for name in NAMES}


def call(name: str, *arguments: object) -> str:
    """Runs a command; returns what it prints on stdout."""
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        COMMANDS[name].main([str(one) for one in arguments], standalone_mode=False)
    return shown.getvalue()
