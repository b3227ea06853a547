"""A synchronous English-French grammar, which writes parallel text with gold word alignments."""

from nmtalign.sample.draft import Example
from nmtalign.sample.grammar import LONGEST, generate
from nmtalign.sample.sample_corpus import SampleSummary, write_sample

__all__ = ["LONGEST", "Example", "SampleSummary", "generate", "write_sample"]
