"""Likely mistakes in the texts of a corpus, found while it is prepared: wrong direction, paragraphs, few pairs."""

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from nmtalign.data.corpus import SIDES
from nmtalign.data.corpus_writer import Summary, Vocabularies
from nmtalign.errors import InputError, UsageError
from nmtalign.settings.command_settings import PrepConfig
from nmtalign.settings.workspace import PathPair
from nmtalign.text.direction import MOST_UNKNOWN, TextFit, exchanged, not_raw, other_language, traces, unknown_words
from nmtalign.text.languages import has_no_spaces, is_unspaced, suffix_language
from nmtalign.text.lines import shown
from nmtalign.text.moses import has_rules
from nmtalign.text.tokenizer import Tokenizers

_SAMPLE = 1000  # pairs of each set by which its texts are judged
_MANY_WORDS, _MANY_SENTENCES = 60, 3  # a line with more words, or as many sentences, is probably a paragraph
_PARAGRAPHS = 0.2  # a larger share of such lines is reported; of real sentences measured: at most 0.06
_SENTENCE_END = re.compile(r"[.!?…][\"'’)»”\]]*\s+[\"'‘(«“\[]*(?=[A-ZÀ-ÞΑ-ΩА-Я])|[。！？](?=.)")
_OVERLAP = 0.02  # a smaller share of pairs that are also training pairs is usual: short sentences are repeated
_FEW_PAIRS = {1_000: "it can only repeat them", 10_000: "expect poor translations of other text"}


def with_vocabulary(config: PrepConfig, languages: tuple[str, str]) -> PrepConfig:
    """The settings with `auto` replaced: unigram if a language has no spaces between words, else word."""
    if config.vocabulary != "auto":
        return config
    return dataclasses.replace(config, vocabulary="unigram" if any(map(has_no_spaces, languages)) else "word")


class CorpusChecks:
    """Checks the texts of a corpus while they are read; `notes` are lines for the user.

    A note on a likely mistake begins with "warning: ". With `force`, certain mistakes are notes, too.
    """

    def __init__(
        self, texts: Mapping[str, PathPair], config: PrepConfig, languages: tuple[str, str], force: bool
    ) -> None:
        """Raises UsageError if the names of the training files say that the languages are exchanged."""
        self.notes: list[str] = []
        # The file of each side, which is the same file for a TSV or TMX file.
        self._texts = {name: (source, target or source) for name, (source, target) in texts.items()}
        self._languages, self._force = languages, force
        self._config = with_vocabulary(config, languages)
        self._samples: dict[str, list[tuple[str, str]]] = {name: [] for name in texts}
        self._held_out: dict[str, Counter[int]] = {name: Counter() for name in texts if name != "train"}
        self._seen: set[int] = set()
        self._words_chosen = config.vocabulary == "auto" and self._config.vocabulary == "word"
        if config.vocabulary == "auto" and not self._words_chosen:
            unspaced = next(filter(has_no_spaces, languages))
            self.notes.append(f"{unspaced} is written without spaces between words: the vocabulary is unigram pieces")
        if texts["train"][1] is not None:
            self._check_names()
        for side, language in zip(SIDES, languages, strict=True):
            if self._config.vocabulary == "word" and not has_rules(language):
                text = shown(self._texts["train"][SIDES.index(side)])
                used = f"those for English are used (--{side}-language CODE)"
                self.notes.append(f"{text}: no Moses rules for language '{language}': {used}")

    def _check_names(self) -> None:
        names = self._texts["train"]
        found = tuple(map(suffix_language, names))
        if names[0] == names[1]:
            self.notes.append(f"warning: {names[0]} is both source and target")
        elif found == self._languages[::-1] != self._languages:
            self._mistake(
                UsageError(
                    f"{shown(names[0])} and {shown(names[1])} are {'-'.join(found)} by their names, and the languages "
                    f"given are {'-'.join(self._languages)}; give the files in the other order, or the languages"
                )
            )

    def _mistake(self, error: InputError | UsageError) -> None:
        if not self._force:
            raise type(error)(f"{error}; --force accepts it as it is")
        self.notes.append(f"warning: {error}")

    def watch(self, name: str, pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        """Yields the pairs of a set and keeps the first ones; of training pairs also which are in other sets.

        The other sets come first.
        """
        sample = self._samples[name]
        held_out = set().union(*self._held_out.values()) if name == "train" else set()
        for pair in pairs:
            if len(sample) < _SAMPLE:
                sample.append(pair)
            if name != "train":
                self._held_out[name][hash(pair)] += 1
            elif held_out and (key := hash(pair)) in held_out:
                self._seen.add(key)
            yield pair

    def finish(self, summary: Summary, tokenizers: Tokenizers, vocabularies: Vocabularies) -> None:
        """Completes the notes; raises InputError if source and target of dev or test are exchanged."""
        if self._words_chosen:
            name = next(name for name in ("dev", "test", "train") if name in summary.splits)
            rates = [side.unknown_rate for side in (summary.splits[name].source, summary.splits[name].target)]
            self.notes.append(
                "the vocabulary is words, because both languages have spaces between words; "
                f"{rates[0]:.2%} of the source words and {rates[1]:.2%} of the target words of {name} are unknown "
                "(--vocabulary bpe has no unknown words)"
            )
        for name in self._texts:
            self._check_script(name)
            if name != "train" or self._config.vocabulary_from:
                self._check_direction(name, tokenizers, vocabularies)
            self._check_unknown(name, summary)
        self._check_raw()
        self._check_overlap()
        self._check_lines(summary)
        kept = summary.splits["train"].kept
        expected = next((text for most, text in _FEW_PAIRS.items() if kept < most), "")
        if expected and not self._config.vocabulary_from:  # a model that is adapted needs fewer pairs
            self.notes.append(f"{kept:,} training pairs are few for a translation model: {expected}")
        if "dev" not in summary.splits:
            self.notes.append(
                "no dev set: training cannot keep its best weights or stop when they get worse; give --dev SRC TGT, or "
                "set sentences aside with --dev-lines 1000"
            )

    def _lines(self, name: str) -> Iterator[tuple[str, str, tuple[str, ...]]]:
        """For each side of a set: the name of its file, its language, and the first lines."""
        lines = zip(*self._samples[name], strict=True)
        for path, language, sample in zip(self._texts[name], self._languages, lines, strict=True):
            yield shown(path), language, sample

    def _check_script(self, name: str) -> None:
        for path, _, lines in self._lines(name) if self._config.vocabulary == "word" else ():
            if is_unspaced(lines):
                self.notes.append(
                    f"warning: {path}: has no spaces between words, so each line becomes a few long words; give "
                    "--vocabulary unigram"
                )

    def _check_direction(self, name: str, tokenizers: Tokenizers, vocabularies: Vocabularies) -> None:
        fits = [TextFit(tokenizers, vocabularies, side) for side in (0, 1)]
        for pair in self._samples[name]:
            for fit, line in zip(fits, pair, strict=True):
                if not fit.full:
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
            self.notes += [
                other_language(f"{name}: {shown(path)}", fit)
                for path, fit in zip(names, fits, strict=True)
                if fit.fits_other()
            ]

    def _check_unknown(self, name: str, summary: Summary) -> None:
        split = summary.splits[name]
        for path, side, language in zip(self._texts[name], (split.source, split.target), self._languages, strict=True):
            if side.unknown_rate > MOST_UNKNOWN:
                self.notes.append(unknown_words(f"{name}: {shown(path)}", side.unknown_rate, language))

    def _check_raw(self) -> None:
        if self._config.vocabulary == "none":
            return
        texts = [
            (f"{path}{f' ({language})' if paths[0] == paths[1] else ''}", traces(lines, markup=True))
            for name, paths in self._texts.items()
            for path, language, lines in self._lines(name)
        ]
        self.notes += not_raw(texts, ", or give --vocabulary none, which takes its words as they are")

    def _check_overlap(self) -> None:
        if self._config.clean:  # these pairs were dropped
            return
        for name, pairs in self._held_out.items():
            both = sum(count for key, count in pairs.items() if key in self._seen)
            if both > _OVERLAP * pairs.total():
                self.notes.append(
                    f"warning: {both:,} of the {pairs.total():,} pairs of {name} are also training pairs, so scores on "
                    "it will be too good; remove them from one of the two"
                )

    def _check_lines(self, summary: Summary) -> None:
        """Notes that the lines of a training text are paragraphs."""
        dropped, total = summary.splits["train"].dropped["too long"], summary.splits["train"].pairs
        for path, _, lines in self._lines("train"):
            long = sum(
                len(line.split()) > _MANY_WORDS or len(_SENTENCE_END.findall(line)) + 1 >= _MANY_SENTENCES
                for line in lines
            )
            if long > _PARAGRAPHS * len(lines):
                self.notes.append(
                    f"warning: {path}: {long / len(lines):.0%} of the lines are paragraphs and not sentences; "
                    f"max_length = {self._config.max_length} drops {dropped:,} of {total:,} pairs: split both texts "
                    "into one sentence per line with a sentence aligner, or raise max_length"
                )
                return
