"""Which words links count: those between spaces, as `nmtalign link` does for a raw text, or the tokens of a corpus.

In a raw text the word `l'ami.` is one word between spaces and three tokens (l', ami and the full stop). The counting of
a file of links is recognised by its positions, and links between words become links between tokens.
"""

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate, islice
from typing import NamedTuple

from nmtalign.errors import InputError
from nmtalign.text.tokenizer import JUNK, SpacedWords, is_word_or_number

Links = Collection[tuple[int, int]]  # (source, target), from 0

SAMPLE = 1_000  # pairs by which a file is judged
_FEWEST = 10  # sides or pairs that can tell the countings apart, without which nothing is decided
_NEVER, _OFTEN = 0.02, 0.2  # shares of sides with a position beyond the last word between spaces
# Measured on 20,000 pairs: between links that count differently 6% of the pairs have equal largest positions, and the
# later links agree half as often as the earlier ones; between links that count alike at least as often (0.95 to 1.2).
# In 5,700 tries with few or wrong links that count alike, chance never made the difference this many standard errors.
_EQUAL_ENDS, _LATER, _ERRORS = 0.3, 0.75, 4


class SplitLine(NamedTuple):
    """The tokens of a line, and the words between spaces that consist of them."""

    tokens: Sequence[str]
    words: Sequence[int]  # of each token, from 0
    word_count: int  # with those that have no token, such as a no-break space

    @classmethod
    def of(cls, line: str, tokens: Sequence[str]) -> "SplitLine":
        """Finds the words of the tokens of a line; if the tokens are not all of its characters, each is one word."""
        ends = list(accumulate(len(JUNK.sub("", "".join(word.split()))) for word in SpacedWords().tokenize(line)))
        places = [0, *accumulate(map(len, tokens))]
        if not ends or places[-1] != ends[-1]:
            return cls(tokens, range(len(tokens)), len(tokens))
        return cls(tokens, [bisect_right(ends, place) for place in places[:-1]], len(ends))

    def tells(self) -> bool:
        """Returns whether the last token with a letter has a place that no word between spaces has."""
        last = max((place for place, token in enumerate(self.tokens) if is_word_or_number(token)), default=-1)
        return last >= self.word_count


SplitPair = tuple[SplitLine, SplitLine]  # source and target


def counts_words(pairs: Iterable[tuple[Links, SplitPair]]) -> bool | None:
    """Returns True for links that count the words between spaces, False for tokens, None if that is not clear.

    Token links reach places beyond the last word; links of words never do. Only the first `SAMPLE` pairs are read.
    """
    telling = beyond = 0
    for links, pair in islice(pairs, SAMPLE):
        for place, side in enumerate(pair):
            if links and side.tells():
                telling += 1
                beyond += max(link[place] for link in links) >= side.word_count
    if telling < _FEWEST or _NEVER * telling < beyond < _OFTEN * telling:
        return None
    return beyond <= _NEVER * telling


def token_links(links: Links, pair: SplitPair) -> list[tuple[int, int]]:
    """Returns links between words between spaces as links between their tokens.

    Equal tokens of linked words are linked, punctuation marks too. The other tokens with letters or digits are linked
    in order where one word is linked to several: "the friend" and "l'ami" give the-l' and friend-ami. If their numbers
    differ, the longest token of each word represents it.
    """
    places: tuple[dict[int, list[int]], ...] = (defaultdict(list), defaultdict(list))
    for own, side in zip(places, pair, strict=True):
        for place, word in enumerate(side.words):
            own[word].append(place)
    several = {word for word, count in Counter(i for i, _ in links).items() if count > 1}
    groups = defaultdict(list)  # around each source word that has several links, else around the target word
    for i, j in links:
        groups[(i, -1) if i in several else (-1, j)].append((i, j))
    found = set[tuple[int, int]]()
    for group in groups.values():
        found |= _group_links(group, places, (pair[0].tokens, pair[1].tokens))
    return sorted(found)


def _group_links(
    group: Links, places: Sequence[dict[int, list[int]]], tokens: tuple[Sequence[str], Sequence[str]]
) -> set[tuple[int, int]]:
    """Returns the links between the tokens of a word and those of all words that it is linked to."""
    first, second = (
        [place for word in sorted({link[side] for link in group}) for place in places[side][word]] for side in (0, 1)
    )
    found = {(i, j) for i in first for j in second if tokens[0][i] == tokens[1][j]}
    done = {i for i, _ in found}, {j for _, j in found}

    def rest(side: int, own: Iterable[int]) -> list[int]:
        return [place for place in own if place not in done[side] and is_word_or_number(tokens[side][place])]

    ours, theirs = rest(0, first), rest(1, second)
    if len(ours) == len(theirs):
        return found | set(zip(ours, theirs, strict=True))
    for i, j in group:
        ours, theirs = rest(0, places[0][i]), rest(1, places[1][j])
        if ours and theirs:
            found.add((max(ours, key=lambda k: len(tokens[0][k])), max(theirs, key=lambda k: len(tokens[1][k]))))
    return found


def converted_note(name: str) -> str:
    """Returns what a user should know when the links of a file were converted."""
    return f"{name}: counts the words between spaces; its links were converted to links between tokens"


def check_alike(first: str, second: str, pairs: Iterable[tuple[Links, Links]]) -> None:
    """Raises InputError if of the two files with these links one counts words between spaces and the other tokens.

    The texts are not known, so both must link the same text, and much of it equally.
    """
    seen = list(islice(pairs, SAMPLE))
    for few, many, both in ((first, second, seen), (second, first, [pair[::-1] for pair in seen])):
        if _is_shorter(both):
            raise InputError(
                f"{few}: counts the words between spaces, and {many} counts tokens, where punctuation marks are "
                "separate, or the texts are others; give links of the same texts, for example of the tokenised ones"
            )


def _is_shorter(pairs: Iterable[tuple[Links, Links]]) -> bool:
    """Returns whether the first links end before the second ones, and agree with them less and less along the lines."""
    number = ends = telling = 0
    agreeing, total = [0, 0], [0, 0]  # of the first and of the second half of each line
    for links, others in pairs:
        if not links or not others:
            continue
        number += 1
        gaps = [max(link[side] for link in others) - max(link[side] for link in links) for side in (0, 1)]
        ends += min(gaps) < 1
        if min(gaps) < 1 or max(gaps) < 2:  # without marks inside the line, both countings are the same
            continue
        telling += 1
        for place, link in enumerate(sorted(links)):
            half = 2 * place >= len(links)
            agreeing[half], total[half] = agreeing[half] + (link in others), total[half] + 1
    if telling < _FEWEST or ends > _EQUAL_ENDS * number or not all(total):
        return False
    early, late = (found / of for found, of in zip(agreeing, total, strict=True))
    mean = sum(agreeing) / sum(total)
    error = math.sqrt(mean * (1 - mean) * (1 / total[0] + 1 / total[1]))
    return late < min(_LATER * early, early - _ERRORS * error)
