"""The teaching page: how RNNsearch and RNNencdec translate a sentence, in numbers of real forward passes."""
