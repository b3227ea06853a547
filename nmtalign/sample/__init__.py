"""A synchronous English-French grammar, which writes parallel text with gold word alignments."""
