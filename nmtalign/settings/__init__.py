"""Every setting, defined once: options, TOML keys, keyword arguments, errors and the manual come from these files."""

from nmtalign.settings import (  # they enter their settings in SECTIONS
    alignment_settings,
    command_settings,
    reproduce_settings,
    serve_settings,
    training_settings,
)

__all__ = ["alignment_settings", "command_settings", "reproduce_settings", "serve_settings", "training_settings"]
