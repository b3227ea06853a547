"""A synchronous English-French grammar, which writes parallel text with gold word alignments."""

from nmtalign.sample.draft import Example
from nmtalign.sample.grammar import LONGEST, generate
from nmtalign.sample.sample_corpus import CONFIGURATION, SampleSummary, write_sample

__all__ = ["CONFIGURATION", "LONGEST", "Example", "SampleSummary", "generate", "write_sample"]
