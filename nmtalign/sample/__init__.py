"""A synchronous English-French grammar of our own, which writes parallel text with gold word alignments."""

from nmtalign.sample.draft import Example
from nmtalign.sample.sentences import LONGEST, generate
from nmtalign.sample.writer import CONFIGURATION, SampleSummary, write_sample

__all__ = ["CONFIGURATION", "LONGEST", "Example", "SampleSummary", "generate", "write_sample"]
