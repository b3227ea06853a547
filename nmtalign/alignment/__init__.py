"""Alignments as data: forced decoding, the HDF5 store, hard links, error rates, pictures.

Nothing is imported here: `store`, `links`, `gold` and `heatmap` work without PyTorch.
"""
