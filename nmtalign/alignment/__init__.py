"""Alignments as data: forced decoding, HDF5 files, hard links, symmetrisation, error rates, pictures.

Only `aligning`, `forced` and `readings` import PyTorch. This file imports nothing.
"""
