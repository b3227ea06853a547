"""Every setting, defined once: options, TOML keys, keyword arguments, errors and the manual come from these files."""

from nmtalign.settings import (  # they enter their settings in SECTIONS
    command_settings,
    reproduce_settings,
    training_settings,
)

__all__ = ["command_settings", "reproduce_settings", "training_settings"]
