"""Small models of SentencePiece."""

import io
from collections.abc import Iterable
from typing import Any

import sentencepiece

from nmtalign.text.tokenizer import SentencePieces


def learned_pieces(lines: Iterable[str], size: int, **options: Any) -> SentencePieces:
    """Pieces that are learned from lines, at most `size`."""
    model = io.BytesIO()
    settings = {"model_type": "bpe", "hard_vocab_limit": False, "minloglevel": 9, **options}
    how = {"model_writer": model, "vocab_size": size, **settings}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), **how)
    return SentencePieces(model.getvalue())
