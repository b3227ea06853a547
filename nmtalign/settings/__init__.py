"""Every setting, defined once: options, TOML keys, keyword arguments, errors and the manual come from these files."""

from nmtalign.settings import alignment_settings, command_settings, training_settings  # their settings enter SECTIONS

__all__ = ["alignment_settings", "command_settings", "training_settings"]
