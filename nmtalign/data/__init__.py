"""The prepared corpus and its batches."""
