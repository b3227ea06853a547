"""Training of sentencepiece models, one a side."""

import io
import re
from collections.abc import Iterator
from pathlib import Path

from nmtalign.errors import InputError, UsageError
from nmtalign.settings.definition import SettingError
from nmtalign.text.tokenizer import SentencePieces, blanks_to_spaces
from nmtalign.text.vocabulary import EOS, UNK, Vocabulary

# Text to learn from, a side: more changes the pieces little, and both sides at once must fit in 2 GB. Measured: bpe
# takes about 6 bytes of memory a byte of text, unigram 21.
SAMPLE_BYTES = {"bpe": 80_000_000, "unigram": 30_000_000}
_THREADS = 4  # fixed: unigram sums over threads, and the model must not depend on the machine
_RARE_CHARACTERS = 0.9995  # share of all characters that get a piece of their own, where there are very many kinds


def spooled_lines(path: Path) -> Iterator[str]:
    """The lines of a temporary file, ended by `\\n` alone."""
    with path.open(encoding="utf-8", newline="\n") as stream:
        for line in stream:
            yield line[:-1]


def train_pieces(path: Path, kind: str, size: int, name: str) -> bytes:
    """A model of `size` ids less one (`</s>` is ours), learned from the raw lines of `path`.

    `kind` is "bpe" or "unigram". Of a text larger than SAMPLE_BYTES every n-th line is taken. The same text gives the
    same model. Raises UsageError naming the text and the sizes that are possible.
    """
    import sentencepiece

    step = max(1, -(-path.stat().st_size // SAMPLE_BYTES[kind]))
    characters: set[str] = set()
    for line in _sample(path, step):
        characters.update(line)
    if not characters:
        raise InputError(f"{name}: no text to learn subword pieces from")
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_sample(path, step),
            model_writer=model,
            model_type=kind,
            vocab_size=size - 1,
            # A character without a piece is an unknown word, so all get one unless they would fill the vocabulary.
            character_coverage=1.0 if len(characters) <= size // 4 else _RARE_CHARACTERS,
            # Raw text must come back as it was: no Unicode normalisation.
            normalization_rule_name="identity",
            byte_fallback=False,
            hard_vocab_limit=True,
            unk_id=0,
            bos_id=-1,
            eos_id=-1,
            pad_id=-1,
            num_threads=_THREADS,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _size_error(str(error), name, size) from None
    return model.getvalue()


def pieces_vocabulary(tokenizer: SentencePieces) -> Vocabulary:
    """`</s>`, `<unk>`, then the model's pieces by rank."""
    return Vocabulary([EOS, UNK, *(piece for piece in tokenizer.pieces() if piece not in (EOS, UNK))])


def _sample(path: Path, step: int) -> Iterator[str]:
    for number, line in enumerate(spooled_lines(path)):
        if number % step == 0:
            yield blanks_to_spaces(line)


def _size_error(message: str, name: str, size: int) -> UsageError:
    if found := re.search(r"value <= (\d+)", message):
        return SettingError(f"too large for {name}: its text gives at most {int(found[1]) + 1}", size=size)
    if found := re.search(r"required_chars\D*\d+ vs (\d+)", message):
        return SettingError(f"too small for {name}: its characters alone need {int(found[1]) + 1}", size=size)
    return UsageError(f"{name}: sentencepiece cannot learn {size} pieces: {message}")
