"""From a sentence to its translation: beam search, the translator of lines, unknown words, output formats."""
