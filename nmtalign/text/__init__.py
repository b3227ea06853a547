"""Text in and out: lines, tokenisers, vocabularies."""
