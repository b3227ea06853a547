"""Files of links of the same pairs, with positions that count the same words."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from nmtalign.alignment.alignment_file import AlignmentFile
from nmtalign.alignment.link_files import GoldLinks, LinkFile, plural
from nmtalign.errors import InputError, with_more
from nmtalign.settings.workspace import FilePair
from nmtalign.text.languages import suffix_language
from nmtalign.text.lines import read_lines, shown
from nmtalign.text.link_counting import (
    SAMPLE,
    Links,
    SplitLine,
    SplitPair,
    check_alike,
    converted_note,
    counts_words,
    token_links,
)
from nmtalign.text.tokenizer import MosesWords, SpacedWords

Side = Sequence[Sequence[str]] | None  # the words of each line, if they are known
Paths = tuple[Path | None, Path | None]


class ComparableLinks(NamedTuple):
    """Files of links that count the same words, the words that they count, and a note for each converted file."""

    files: Sequence[LinkFile]
    pairs: int
    words: tuple[Side, Side]
    origin: str  # of the words
    notes: Sequence[str] = ()


def comparable(files: Sequence[LinkFile], texts: Paths, others: Sequence[FilePair] = ()) -> ComparableLinks:
    """Returns files of links, gold links first, with their words: those of the texts, else of an alignment file.

    Where one file counts the words between spaces and another one tokens, the links of the first become links between
    tokens. This needs both texts: those given, or two of `others` that fit. Raises InputError for files of unequal
    length, for a link outside its pair, and if files that count differently cannot be converted.
    """
    lines = {path: list(read_lines(path)) for path in texts if path}
    pairs = common_length(files, {shown(path): len(text) for path, text in lines.items()})
    source, target = texts
    if source and target:
        if found := _in_tokens(files, (source, target), (lines[source], lines[target])):
            return found
    else:
        try:
            for file in files[1:]:
                check_alike(file.name, files[0].name, _both(file, files[0], pairs))
        except InputError as error:
            for one in others:
                with suppress(InputError):  # other texts, or none
                    text = list(read_lines(one[0])), list(read_lines(one[1]))
                    if len(text[0]) == len(text[1]) == pairs and (found := _in_tokens(files, one, text)):
                        return found
            raise with_more(error, ", or convert them here with the raw texts (--source and --target)") from None
    split = SpacedWords().tokenize
    holder = next((file for file in files if file.words is not None), None)
    words = tuple(
        [split(line) for line in lines[path]] if path
        else [pair[side] for pair in holder.words] if holder and holder.words is not None else None
        for side, path in enumerate(texts)
    )  # fmt: skip
    for number in range(pairs):
        for file in files:
            file.check_inside(number, *(None if side is None else len(side[number]) for side in words))
    origin = shown(source) if source else holder.name if holder else "largest gold position"
    return ComparableLinks(files, pairs, (words[0], words[1]), origin)


def _both(file: LinkFile, gold: LinkFile, pairs: int) -> Iterator[tuple[Links, Links]]:
    return ((file.pair(number).possible, gold.pair(number).possible) for number in range(pairs))


def _in_tokens(
    files: Sequence[LinkFile], texts: FilePair, lines: tuple[Sequence[str], Sequence[str]]
) -> ComparableLinks | None:
    """Returns the files with links between the tokens of two raw texts; None if none of them counts tokens."""
    sample = _split(texts, [text[:SAMPLE] for text in lines])
    counted = [counts_words((file.pair(number).possible, pair) for number, pair in enumerate(sample)) for file in files]
    if False not in counted:
        return None
    pairs = _split(texts, lines)
    found = [_converted(file, pairs, bool(words)) for file, words in zip(files, counted, strict=True)]
    notes = [converted_note(file.name) for file, words in zip(files, counted, strict=True) if words]
    words = [source.tokens for source, _ in pairs], [target.tokens for _, target in pairs]
    return ComparableLinks(found, len(pairs), words, shown(texts[0]), notes)


def _split(texts: FilePair, lines: Sequence[Sequence[str]]) -> list[SplitPair]:
    source, target = (
        [SplitLine.of(line, tokenize(line)) for line in text]
        for text, tokenize in zip(lines, (MosesWords(suffix_language(path)).tokenize for path in texts), strict=True)
    )
    return list(zip(source, target, strict=True))


def _converted(file: LinkFile, pairs: Sequence[SplitPair], words: bool) -> LinkFile:
    """Returns a file, converted if it counts `words`; raises InputError for a link outside its pair."""
    found = []
    for number, pair in enumerate(pairs):
        file.check_inside(number, *(side.word_count() if words else len(side.tokens) for side in pair))
        if words:
            sure, possible = (frozenset(token_links(links, pair)) for links in vars(file.pair(number)).values())
            found.append(GoldLinks(sure, possible | sure))
    method = ",".join(filter(None, (file.method, "words-to-tokens")))
    return replace(file, pairs=found, method=method) if words else file


def check_gold(gold: LinkFile, file: AlignmentFile) -> None:
    """Raises InputError if gold links count the words between spaces, and the alignments tokens, or the reverse."""
    best = (pair for pair in file.links() if pair.rank == 0 and pair.sentence_id < len(gold.pairs))
    check_alike(gold.name, str(file.path), ((gold.pairs[pair.sentence_id].possible, pair.links) for pair in best))


def common_length(files: Sequence[LinkFile], texts: Mapping[str, int]) -> int:
    """Returns the number of pairs that all files and texts (name: lines) have; raises InputError if they differ."""
    counts = {file.name: len(file.pairs) for file in files if not file.open_ended} | dict(texts)
    open_ended = [file for file in files if file.open_ended]
    if not counts:
        return max((len(file.pairs) for file in open_ended), default=0)
    (first, expected), *others = counts.items()
    for name, count in others:
        if count != expected:
            (short, fewer), (long, more) = sorted(((first, expected), (name, count)), key=lambda item: item[1])
            raise InputError(
                f"{short}: has no line {fewer + 1}: it has {plural(fewer, 'line')}, but {long} has "
                f"{plural(more, 'line')}; give files with one line per sentence"
            )
    for file in open_ended:
        if (count := len(file.pairs)) > expected:
            where = file.where(count - 1, min(file.pairs[-1].possible))
            raise InputError(
                f"{where}: a link of sentence {count}, but {first} has {plural(expected, 'line')}; give files of the "
                "same sentences"
            )
    return expected
