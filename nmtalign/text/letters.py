"""The letters of a word: each is a character with its marks and joiners, such as a flag of two characters."""

import functools
import re
import unicodedata

_JOINER = "\u200d"  # zero-width joiner
_HALF_FLAG = re.compile("[\U0001f1e6-\U0001f1ff]")
# Vowels and ends of Korean syllables, U+200C and U+200D, skin tones, and the tags of the flags of regions.
_SECOND = re.compile("[\u1160-\u11ff\ud7b0-\ud7ff\u200c\u200d\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]")


def letters_of(word: str) -> list[str]:
    """Splits a word into letters, each with what belongs to it: marks, joiners, the other half of a flag.

    A mark without a letter before it belongs to the letter behind it.
    """
    letters: list[str] = []
    for character in word:
        if letters and (_belongs(character) or _continues(letters[-1], character)):
            letters[-1] += character
        else:
            letters.append(character)
    return letters


@functools.cache
def _belongs(character: str) -> bool:
    """Whether a character is never written without one before it: combining marks and vowels, joiners, skin tones."""
    return unicodedata.category(character)[0] == "M" or bool(_SECOND.match(character))


def _continues(letter: str, character: str) -> bool:
    """Whether a character that could begin a letter belongs to the one before it, which ends differently."""
    if letter[-1] == _JOINER:
        return unicodedata.category(character) == "So"  # as in the emoji of a woman with a computer
    flag = len(letter) == 1 and bool(_HALF_FLAG.match(letter)) and bool(_HALF_FLAG.match(character))
    return flag or all(map(_belongs, letter))


def bare(word: str) -> str:
    """The word with one character for each of its letters, without what belongs to them."""
    if word.isascii():
        return word
    return "".join(next((each for each in letter if not _belongs(each)), letter[0]) for letter in letters_of(word))
