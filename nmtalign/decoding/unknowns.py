"""Unknown words in a translation: replaced through the alignment (PAPER section 8).

What was tried on Multi30k, 3,000 words a side, BLEU of val / test_2016 / test_2017, cased and detokenised, with a
lexicon of IBM Model 1: unknown words left out 54.95 / 57.69 / 48.57, copies 55.02 / 57.90 / 48.41, the most probable
translation 56.46 / 59.00 / 49.94, and by the rules below 56.63 / 59.12 / 50.21. Translations that the model does not
know itself, taken before those that it does, cost up to 0.3: the lexicon errs more than the model does.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nmtalign.text.vocabulary import UNK_ID, read_entries

Weights = npt.NDArray[np.float32]

_UNKNOWN_SHARE = 0.3  # of the largest weight: what an unknown source word needs to go before a known one
_UNUSED_SHARE = 0.1  # and one that replaces nothing yet, to go before one that does
_SENTENCE_ENDS = frozenset(".?!…")
_VOWELS = frozenset("aàâäeéèêëiîïoôöuùûüœæ")
_ELIDED = {"le": "l'", "la": "l'", "de": "d'", "ne": "n'", "se": "s'", "que": "qu'"}
_FULL = {"l'": "le", "d'": "de", "n'": "ne", "s'": "se", "qu'": "que"}


def read_lexicon(path: Path) -> dict[str, str]:
    """The best translation of each source word in a file that `read_entries` reads; the first of equally probable ones.

    Raises FormatError naming file and line.
    """
    best: dict[str, tuple[float, str]] = {}
    for source, target, probability in read_entries(path):
        if source not in best or probability > best[source][0]:
            best[source] = probability, target
    return {source: target for source, (_, target) in best.items()}


def replace_unknowns(
    ids: Sequence[int],
    tokens: Sequence[str],
    weights: Weights | Sequence[Weights],
    words: Sequence[str],
    copies: Sequence[str],
    lexicon: Mapping[str, str],
    word_start: str = "",
    unknown: Collection[int] = (),
    language: str = "",
) -> list[str]:
    """The target tokens with each unknown one replaced by a translation or a copy of what it is aligned with.

    ids and tokens are the target's, weights (Ty + 1, Tx), columns the source tokens and last its `</s>`, which is left
    out, as the last row is; of a line that was translated in pieces there are those of each piece. For the source token
    with the largest weight: the lexicon's translation of the word that it is part of (words[i]), marked as a word with
    `word_start`; else its copy (copies[i]). Marks go after words, a word that replaces another already after one that
    does not, and a known word after one whose place is in `unknown`, unless its weight is far larger. Translations take
    the case of the source word, and at the start of a sentence that of the source sentence. With `language` "fr"
    articles and the like before a replaced word are elided as it asks for.
    """
    replaced, used = list(tokens), set[int]()
    if not copies:
        return replaced
    capital = _is_capitalised(next(filter(_is_word, words), ""))
    pieces = [weights] if isinstance(weights, np.ndarray) else weights
    for row, (number, (first, read)) in enumerate(zip(ids, _rows(pieces), strict=True)):
        if number != UNK_ID:
            continue
        place = _place(first, read, copies, used, unknown)
        used.add(place)
        translation = _translation(words, place, lexicon)
        word = copies[place] if translation is None else word_start + translation
        starts = capital and word.islower() and _starts_sentence(replaced, row)
        replaced[row] = _capitalised(word) if starts else word
        if language == "fr" and row:
            replaced[row - 1] = _elided(replaced[row - 1], replaced[row])
    return replaced


def _rows(pieces: Sequence[Weights]) -> Iterator[tuple[int, Weights]]:
    """Of each target token the place of the first source token of its piece, and the weights of the piece's tokens."""
    first = 0
    for piece in pieces:
        for row in piece[:-1]:
            yield first, row[:-1]
        first += piece.shape[1] - 1


def _place(first: int, weights: Weights, tokens: Sequence[str], used: Collection[int], unknown: Collection[int]) -> int:
    """Which source token, of those from the `first` on that there are weights of, an unknown word stands for."""
    piece = range(first, first + len(weights))
    weight = dict(zip(piece, weights.tolist(), strict=True))
    places = [place for place in piece if _is_word(tokens[place])] or piece
    best = max(places, key=weight.__getitem__)
    for preferred, share in ((set(places).difference(used), _UNUSED_SHARE), (unknown, _UNKNOWN_SHARE)):
        left = [place for place in places if place in preferred and weight[place] >= share * weight[best]]
        places = left or places
        best = max(places, key=weight.__getitem__)
    return best


def _translation(words: Sequence[str], place: int, lexicon: Mapping[str, str]) -> str | None:
    """The lexicon's translation of a word, or of the word in another case with the case of this one."""
    word = words[place]
    lower = lexicon.get(word.lower())
    if lower is not None and _is_capitalised(word) and _starts_sentence(words, place):
        return lower  # its capital is that of the sentence
    if word in lexicon:
        return lexicon[word]
    if lower is None:
        return lexicon.get(_capitalised(word))
    if word.isupper() and len(word) > 1:
        return lower.upper()
    return _capitalised(lower) if word[0].isupper() else lower


def _starts_sentence(tokens: Sequence[str], place: int) -> bool:
    """Whether no word of the sentence comes before a place."""
    for before in range(place - 1, -1, -1):
        token = tokens[before]
        if token[-1:] in _SENTENCE_ENDS and not _is_word(token):
            return True
        if _is_word(token):
            return False
    return True


def _is_word(token: str) -> bool:
    return any(map(str.isalnum, token))


def _is_capitalised(word: str) -> bool:
    """Whether it starts with a capital, and is not written in capitals."""
    return word[:1].isupper() and (len(word) == 1 or not word.isupper())


def _capitalised(word: str) -> str:
    """The word with a capital for its first letter, which a mark of pieces may come before."""
    first = next((place for place, character in enumerate(word) if character.isalpha()), 0)
    return word[:first] + word[first : first + 1].upper() + word[first + 1 :]


def _elided(before: str, word: str) -> str:
    """A French article, pronoun or preposition as it stands before a word; no change before h, which may be either."""
    forms = _ELIDED if word[:1].lower() in _VOWELS else _FULL
    form = forms.get(before.lower()) if word[:1].isalpha() and word[0] not in "hH" else None
    if form is None:
        return before
    return _capitalised(form) if before[0].isupper() else form
