"""The experiments of Bahdanau et al. (2015) on any corpus: train, translate, compare, and write a report.

`plan` resolves the settings, `running` trains and translates, `reproduction_results` computes all numbers, and
`reproduction_report` writes the folder of the report.
"""
