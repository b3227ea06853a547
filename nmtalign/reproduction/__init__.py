"""The paper's experiments on any corpus: what is trained, how it is compared, and the report of it."""
