"""nmtalign: learn to translate and to align at once (Bahdanau, Cho & Bengio 2015)."""

from nmtalign.version import __version__

__all__ = ["__version__"]
