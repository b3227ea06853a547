"""Small models of SentencePiece."""

import io
from itertools import accumulate

import sentencepiece

from nmtalign.text.tokenizer import SentencePieces


def learned_pieces(lines, size, **options):
    """Pieces that are learned from lines, at most `size`."""
    model = io.BytesIO()
    settings = {"model_type": "bpe", "hard_vocab_limit": False, "minloglevel": 9, **options}
    how = {"model_writer": model, "vocab_size": size, **settings}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), **how)
    return SentencePieces(model.getvalue())


def words_of(tokenizer, tokens):
    """The 0-based number of the word to which each token belongs."""
    return [*accumulate(map(tokenizer.starts_word, tokens[1:]), initial=0)] if tokens else []
