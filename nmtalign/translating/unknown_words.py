"""Replaces unknown words in a translation by translations or copies of the source words that they are aligned with."""

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
import numpy.typing as npt
import regex

from nmtalign.text.languages import SENTENCE_ENDS, capitalised, count_unspaced, lower_case, upper_case
from nmtalign.text.tokenizer import UNK_ID, WORD_START, Subwords, Tokenizers, is_word_or_number, read_entries

Weights = npt.NDArray[np.float32]

_UNKNOWN_SHARE = 0.3  # share of the largest weight: an unknown source word with this weight is preferred to known ones
_UNUSED_SHARE = 0.1  # likewise, an unused source word is preferred to used ones
_VOWELS = frozenset("aàâäeéèêëiîïoôöuùûüœæ")
_MARKS = regex.compile(r"\A\p{P}+|\p{P}+\Z")
_ELIDED = {"le": "l'", "la": "l'", "de": "d'", "ne": "n'", "se": "s'", "que": "qu'"}
_FULL = {"l'": "le", "d'": "de", "n'": "ne", "s'": "se", "qu'": "que"}


def read_lexicon(path: Path) -> dict[str, str]:
    """The most probable translation of each source word, the first one of equals; the format is that of `read_entries`.

    Raises InputError with file and line.
    """
    best: dict[str, tuple[float, str]] = {}
    for source, target, probability in read_entries(path):
        if source not in best or probability > best[source][0]:
            best[source] = probability, target
    return {source: target for source, (_, target) in best.items()}


def replace_unknowns(
    ids: Sequence[int],
    tokens: Sequence[str],
    weights: Sequence[Weights],
    source_ids: Sequence[int],
    source_tokens: Sequence[str],
    tokenizers: Tokenizers,
    lexicon: Mapping[str, str],
) -> list[str]:
    """Replaces each unknown target token by a translation or a copy of the source token that it is aligned with.

    `ids` and `tokens` are those of the target. `weights` (Ty + 1, Tx), of each piece of the line, have one column per
    source token and a last one for `</s>`; the last row and column are ignored. For the source token with the largest
    weight, the replacement is the lexicon's translation of its word; without a translation it is a copy of this word,
    of an unknown piece a copy of the piece. Words are always preferred to punctuation. Source tokens that replace
    nothing yet are preferred to others, and unknown ones to known ones, unless their weights are far smaller.
    A translation takes the case of the source word, at the start of a sentence that of the source sentence. With Moses
    words a French article or a similar word before a replaced word is elided, or restored, as necessary.
    """
    replaced, used = list(tokens), set[int]()
    if not source_tokens:
        return replaced
    unknown = {place for place, number in enumerate(source_ids) if number == UNK_ID}
    words, copies, word_start = source_tokens, source_tokens, ""
    if isinstance(tokenizers.source, Subwords):
        word_start, names = WORD_START, tokenizers.source.words(source_tokens)
        names = [_MARKS.sub("", name) or name for name in names]  # the pieces of a mark are not those of a word
        later = map(tokenizers.source.starts_word, source_tokens[1:])
        words = [names[word] for word in accumulate(later, initial=0)]
        # Only the unknown piece of a word is copied; its other pieces have their own places in the translation.
        copies = [token if k in unknown else word_start + words[k] for k, token in enumerate(source_tokens)]
    languages = tokenizers.source_language, tokenizers.target_language
    elide = tokenizers.kind == "moses" and languages[1] == "fr"
    capital = _is_capitalised(next(filter(is_word_or_number, words), ""))
    firsts = accumulate((piece.shape[1] - 1 for piece in weights), initial=0)  # the first source token of each piece
    rows = ((first, row[:-1]) for first, piece in zip(firsts, weights, strict=False) for row in piece[:-1])
    for row, (number, (first, row_weights)) in enumerate(zip(ids, rows, strict=True)):
        if number != UNK_ID:
            continue
        place = _place(first, row_weights, copies, used, unknown)
        used.add(place)
        translation = _translation(words, place, lexicon, languages)
        word = copies[place] if translation is None else word_start + translation
        before, bare = replaced[row - 1] if row else "", word.removeprefix(word_start)
        # "▁" has given the space already. Text without spaces has one only between two words of other scripts.
        beside = before[-1:] + bare[:1]
        if before == WORD_START or (tokenizers.target.unspaced and (count_unspaced(beside) or not beside.isalnum())):
            word = bare
        starts = capital and word.islower() and _starts_sentence(replaced, row)
        replaced[row] = _capitalised(word, languages[1]) if starts else word
        if elide and row and ids[row - 1] >= 0:  # given words stay as they are
            replaced[row - 1] = _elided(replaced[row - 1], replaced[row])
    return replaced


def _place(first: int, weights: Weights, tokens: Sequence[str], used: Collection[int], unknown: Collection[int]) -> int:
    """The source token that an unknown word represents; `weights` are those of the tokens from `first` on."""
    piece = range(first, first + len(weights))
    weight = dict(zip(piece, weights.tolist(), strict=True))
    places = [place for place in piece if is_word_or_number(tokens[place])] or piece
    best = max(places, key=weight.__getitem__)
    for preferred, share in ((set(places).difference(used), _UNUSED_SHARE), (unknown, _UNKNOWN_SHARE)):
        places = [place for place in places if place in preferred and weight[place] >= share * weight[best]] or places
        best = max(places, key=weight.__getitem__)
    return best


def _translation(
    words: Sequence[str], place: int, lexicon: Mapping[str, str], languages: tuple[str, str]
) -> str | None:
    """The lexicon's translation of a word, or of its other case; the latter takes the case of the word."""
    word, (source, target) = words[place], languages
    lower = lexicon.get(lower_case(word, source))
    if lower is not None and _is_capitalised(word) and _starts_sentence(words, place):
        return lower  # it is capitalised only because it begins the sentence
    if word in lexicon:
        return lexicon[word]
    if lower is None:
        return lexicon.get(_capitalised(word, source))
    if word.isupper() and len(word) > 1:
        return upper_case(lower, target)
    return _capitalised(lower, target) if word[0].isupper() else lower


def _starts_sentence(tokens: Sequence[str], place: int) -> bool:
    """Whether the token is the first word of its sentence."""
    earlier = map(tokens.__getitem__, range(place - 1, -1, -1))
    before = (token for token in earlier if is_word_or_number(token) or token[-1] in SENTENCE_ENDS)
    return not is_word_or_number(next(before, "."))


def _is_capitalised(word: str) -> bool:
    """Whether a word begins with a capital and is not all in capitals."""
    return word[:1].isupper() and (len(word) == 1 or not word.isupper())


def _capitalised(word: str, language: str) -> str:
    """Capitalises the first letter of a word, which may follow a mark of subword pieces."""
    first = next((place for place, character in enumerate(word) if character.isalpha()), 0)
    return word[:first] + capitalised(word[first:], language)


def _elided(before: str, word: str) -> str:
    """The form of a French article, pronoun or preposition before `word`; unchanged before h, which may be mute."""
    forms = _ELIDED if word[:1].lower() in _VOWELS else _FULL
    form = forms.get(before.lower()) if word[:1].isalpha() and word[0] not in "hH" else None
    if form is None:
        return before
    return _capitalised(form, "fr") if before[0].isupper() else form
