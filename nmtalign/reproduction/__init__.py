"""The experiments of Bahdanau et al. (2015) on any corpus: train, translate, compare, and write a report.

`experiments` says what is trained, `steps` writes the shell commands and runs them, and `reproduction_report` writes
the report from the files that the commands made.
"""
