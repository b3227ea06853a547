"""The version of nmtalign; files that it writes record it."""

__version__ = "0.3.0"
