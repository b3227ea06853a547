"""The experiments of Bahdanau et al. (2015) on any corpus: train, translate, compare, and write a report.

`steps` says what is trained, writes the shell commands and runs them. `reproduction_report` writes the report from the
files that the commands made.
"""
