"""Alignments as data: forced decoding, HDF5 files, hard links, symmetrisation, error rates."""
