"""Likely mistakes in the texts of a corpus, found while it is prepared: wrong direction, paragraphs, few pairs."""

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from nmtalign.data.corpus_writer import Summary
from nmtalign.data.screening import main_script
from nmtalign.errors import InputError, UsageError
from nmtalign.settings.command_settings import PrepConfig
from nmtalign.settings.definition import PathPair, SettingError, pair_of_sizes
from nmtalign.text.languages import (
    MOST_UNKNOWN,
    SAMPLE_WORDS,
    WIDE_ENDS,
    TextFit,
    exchanged,
    has_no_spaces,
    is_unspaced,
    not_raw,
    other_language,
    suffix_language,
    traces,
    unknown_words,
)
from nmtalign.text.lines import BLANK, SIDES, counted, shown
from nmtalign.text.tokenizer import UNK, Tokenizers, Vocabularies, has_rules

_SAMPLE = 1000  # pairs of each set by which its texts are judged
_MANY_WORDS, _MANY_SENTENCES = 60, 3  # a line with more words, or as many sentences, is probably a paragraph
_PARAGRAPHS = 0.2  # a larger share of such lines is reported; of real sentences measured: at most 0.06
_SENTENCE_END = re.compile(rf"[.!?…][\"'’)»”\]]*\s+[\"'‘(«“\[]*(?=[A-ZÀ-ÞΑ-ΩА-Я])|[{WIDE_ENDS}](?=.)")
_OVERLAP = 0.02  # a smaller share of pairs that are also training pairs is usual: short sentences are repeated
_MANY_UNKNOWN = 0.005  # with a larger share of unknown words in the training text, subwords are worth a try
_FEW_PAIRS = 10_000  # with fewer pairs, a model translates little more than these pairs


def subword_size(pairs: int) -> int:
    """The pieces of each vocabulary with `--subwords`, by the number of training pairs.

    It grows with the square root of the number, from 1,000 to 8,000, which were the best of four sizes for 29,000
    pairs. Large corpora get 16,000, which were not measured.
    """
    return 16_000 if pairs >= 500_000 else min(max(1_000 * round(8 * math.sqrt(pairs / 29_000)), 1_000), 8_000)


class CorpusChecks:
    """Checks the texts of a corpus while they are read; `notes` are lines for the user.

    A note on a likely mistake begins with "warning: ". With `force`, certain mistakes are notes, too. In `config` the
    vocabulary `auto` is replaced: unigram with `subwords` or if a language has no spaces between words, else word. If
    `by_text`, the text decides the pieces (`choose_pieces`).
    """

    def __init__(
        self, texts: Mapping[str, PathPair], config: PrepConfig, languages: tuple[str, str], force: bool
    ) -> None:
        """Raises UsageError for exchanged languages, by the names of the training files, and for a size of words."""
        self.notes: list[str] = []
        # The file of each side, which is the same file for a TSV or TMX file.
        self._texts = {name: (source, target or source) for name, (source, target) in texts.items()}
        self._languages, self._force, self.config = languages, force, config
        self._samples: dict[str, list[tuple[str, str]]] = {name: [] for name in texts}
        self._held_out: dict[str, Counter[int]] = {name: Counter() for name in texts if name != "train"}
        self._seen: set[int] = set()
        unspaced = next(filter(has_no_spaces, languages), None)
        self.by_text = config.subwords or (config.vocabulary == "auto" and unspaced is not None)
        self._words_by_default = config.vocabulary == "auto" and not self.by_text
        if self._words_by_default and config.size:
            raise SettingError("this is the number of subword pieces; add --subwords", size=config.size)
        if config.vocabulary == "auto":
            self.config = dataclasses.replace(config, vocabulary="unigram" if self.by_text else "word")
        if self.by_text and not config.subwords:
            self.notes.append(f"{unspaced} is written without spaces between words: the vocabulary is unigram pieces")
        files, found = self._texts["train"], tuple(map(suffix_language, self._texts["train"]))
        if texts["train"][1] == files[0]:
            self.notes.append(f"warning: {files[0]} is both source and target")
        elif texts["train"][1] and found == languages[::-1] != languages:
            named = f"{shown(files[0])} and {shown(files[1])} are {'-'.join(found)} by their names"
            fix = "give the files in the other order, or the languages"
            self._mistake(UsageError(f"{named}, and the languages given are {'-'.join(languages)}; {fix}"))
        for side, path, language in zip(SIDES, files, languages, strict=True):
            if self.config.vocabulary == "word" and not has_rules(language):
                used = f"those for English are used (--{side}-language CODE)"
                self.notes.append(f"{shown(path)}: no Moses rules for language '{language}': {used}")

    def _mistake(self, error: InputError | UsageError) -> None:
        if not self._force:
            raise type(error)(f"{error}; --force accepts it as it is")
        self.notes.append(f"warning: {error}")

    def watch(self, name: str, pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        """Yields the pairs of a set and keeps the first ones; of training pairs also which are in other sets.

        The other sets come first. A pair with a blank side is no training pair.
        """
        sample = self._samples[name]
        held_out = set().union(*self._held_out.values()) if name == "train" else set()
        for pair in pairs:
            if len(sample) < _SAMPLE:
                sample.append(pair)
            if name != "train" and not any(map(BLANK.fullmatch, pair)):
                self._held_out[name][hash(pair)] += 1
            elif held_out and (key := hash(pair)) in held_out:
                self._seen.add(key)
            yield pair

    def choose_pieces(self, pairs: int) -> PrepConfig:
        """The settings, with what `subwords` chooses for the text that was read and this number of training pairs."""
        if not self.config.subwords:
            return self.config
        size, joint = self.config.size or str(subword_size(pairs)), self.config.joint
        if joint is None:
            scripts = set(map(main_script, zip(*self._samples["train"], strict=True)))
            joint = len(scripts) == len({*pair_of_sizes("size", size)}) == 1
        return dataclasses.replace(self.config, subwords=False, size=size, joint=joint)

    def finish(self, summary: Summary, tokenizers: Tokenizers, vocabularies: Vocabularies) -> None:
        """Completes the notes; raises InputError if source and target of dev or test are exchanged."""
        train = summary.splits["train"]
        source, target, kept = train.source, train.target, train.kept
        few_words = not self.config.vocabulary_from and max(source.unknown_rate, target.unknown_rate) > MOST_UNKNOWN
        if self.config.subwords:
            chosen, joint = summary.settings, str("joint" in summary.settings).lower()
            options = f"--vocabulary {chosen['vocabulary']} --size {chosen['size']} --set joint={joint}"
            self.notes.append(f"for {counted(kept, 'training pair')}, --subwords is {options}")
        found = []
        for name, files in self._texts.items():
            self._check_direction(name, tokenizers, vocabularies)
            split = summary.splits[name]
            sides, columns = (split.source, split.target), zip(*self._samples[name], strict=True)
            for path, language, side, lines in zip(files, self._languages, sides, columns, strict=False):
                if self.config.vocabulary == "word" and is_unspaced(lines):
                    why = "has no spaces between words, so each line becomes a few long words"
                    self.notes.append(f"warning: {shown(path)}: {why}; give --vocabulary unigram")
                if side.unknown_rate > MOST_UNKNOWN and not few_words:
                    self.notes.append(unknown_words(f"{name}: {shown(path)}", side.unknown_rate, language))
                of_side = f" ({language})" if files[0] == files[1] else ""
                found.append((f"{shown(path)}{of_side}", traces(lines, markup=True)))
        if self.config.vocabulary != "none":
            self.notes += not_raw(found, ", or --vocabulary none, which takes its words as they are")
        for name, pairs in self._held_out.items() if not self.config.clean else ():  # `clean` drops these pairs
            both = sum(count for key, count in pairs.items() if key in self._seen)
            if both > _OVERLAP * pairs.total():
                shared = f"{both:,} of {counted(pairs.total(), 'pair')} of {name}"
                why = f"so scores on {name} will be too good; remove them from one of the two"
                self.notes.append(f"warning: the training text has {shared}, {why}")
        self._check_lines(summary)
        if kept < _FEW_PAIRS and not self.config.vocabulary_from:  # a model that is adapted needs fewer pairs
            self.notes.append(f"only {counted(kept, 'training pair')}: expect poor translations of other text")
        if "dev" not in summary.splits:
            aside = min(1000, kept // 10)
            self.notes.append(
                "no dev set: training cannot keep its best weights or stop when they get worse; give --dev SRC TGT"
                + (f", or set sentences aside with --dev-lines {aside}" if aside else "")
            )
        if self._words_by_default:
            unknown = (source.unknown_words + target.unknown_words) / max(source.words + target.words, 1)
            without = f" and leaves out {unknown:.1%} of those of the training text" if unknown > _MANY_UNKNOWN else ""
            self.notes.append(f"the vocabulary is words{without}; --subwords makes it pieces, and no word is unknown")

    def _check_direction(self, name: str, tokenizers: Tokenizers, vocabularies: Vocabularies) -> None:
        if name == "train" and not self.config.vocabulary_from:
            return
        fits = [TextFit(tokenizers, vocabularies, side) for side in (0, 1)]
        for pair in self._samples[name]:
            for fit, line in zip(fits, pair, strict=True):
                if fit.words < SAMPLE_WORDS:
                    fit.add(line)
        names = self._texts[name]
        problem, words_agree, _ = exchanged(names, fits)
        if words_agree:
            order = f"{'' if name == 'train' else f'--{name} '}{shown(names[1])} {shown(names[0])}"
            fix = order if names[0] != names[1] else "the columns in the other order with --set columns="
            self._mistake(InputError(f"{name}: {problem}; give {fix}"))
        elif problem:
            self.notes.append(f"warning: {name}: {problem}")
        else:
            wrong = [(path, fit) for path, fit in zip(names, fits, strict=True) if fit.fits_other()]
            self.notes += [other_language(f"{name}: {shown(path)}", fit) for path, fit in wrong]

    def _check_lines(self, summary: Summary) -> None:
        """Notes that the lines of a training text are paragraphs, or that words were taken out of it."""
        train = summary.splits["train"]
        for path, lines in zip(self._texts["train"], zip(*self._samples["train"], strict=True), strict=True):
            if (removed := sum(UNK in line.lower() for line in lines)) > _MANY_UNKNOWN * len(lines):
                where = f"{shown(path)}: {removed / len(lines):.0%} of the lines have {UNK} in place of a word"
                self.notes.append(f"warning: {where}, which no model can translate: prepare the original text")
            counts = ((len(line.split()), len(_SENTENCE_END.findall(line)) + 1) for line in lines)
            long = sum(words > _MANY_WORDS or sentences >= _MANY_SENTENCES for words, sentences in counts)
            if long > _PARAGRAPHS * len(lines):
                self.notes.append(
                    f"warning: {shown(path)}: {long / len(lines):.0%} of the lines are paragraphs and not sentences; "
                    f"max_length = {self.config.max_length} drops {train.dropped['too long']:,} of {train.pairs:,} "
                    "pairs: split both texts into one sentence per line with a sentence aligner, or raise max_length"
                )
                return
