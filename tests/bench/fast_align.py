"""Runs fast_align of the package systran-align in its own environment: SRC TGT FORWARD BACKWARD."""
