"""Beam search and sampling: log-probabilities in, hypotheses out."""
