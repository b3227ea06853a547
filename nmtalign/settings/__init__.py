"""Every setting, defined once: options, TOML keys, keyword arguments, errors and the manual come from these files."""

from nmtalign.settings import command_settings, training_settings  # they enter their settings in SECTIONS

__all__ = ["command_settings", "training_settings"]
