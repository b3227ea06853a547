"""Alignments in one HDF5 file, at the scale of a corpus: writer and reader.

`nmtalign.alignment.layout` documents the file for those who read it with other tools.
"""

from nmtalign.alignment.reader import AlignmentFile
from nmtalign.alignment.record import AlignmentRecord
from nmtalign.alignment.writer import AlignmentWriter

__all__ = ["AlignmentFile", "AlignmentRecord", "AlignmentWriter"]
