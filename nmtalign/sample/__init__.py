"""A synchronous English-French grammar of our own, which writes parallel text with gold word alignments."""

from nmtalign.sample.draft import Example
from nmtalign.sample.sentences import LONGEST, generate
from nmtalign.sample.writer import SampleSummary, write_sample

__all__ = ["LONGEST", "Example", "SampleSummary", "generate", "write_sample"]
