"""Scores of given translations: the log-probability of each target token of sentence pairs and of n-best lists."""

import contextlib
import itertools
import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import torch

from nmtalign.alignment.forced_decoding import too_much
from nmtalign.alignment.links import Pair
from nmtalign.core.model import make_source
from nmtalign.core.numerics import in_halves
from nmtalign.errors import InputError, UsageError
from nmtalign.files import atomic_text
from nmtalign.search.beam_search import Sources, force
from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.text.languages import check_pairs
from nmtalign.text.lines import as_json, checked_pairs, counted, read_lines, read_pairs, shown
from nmtalign.text.tokenizer import EOS, UNK_ID
from nmtalign.translating.file_translation import are_files, fixed
from nmtalign.translating.translator import WINDOW_BATCHES, Translator, default_words, in_batches, windows

_PAIR_CHARACTERS = 12  # characters of a source word and a target word
_ID = re.compile(r"\d{1,15}", re.ASCII)


@dataclass(frozen=True)
class ScoredPair:
    """A sentence pair with the log-probability of its target.

    token_log_probs: those of each target token and of `</s>`, len(target_tokens) + 1 numbers. log_prob: their sum.
    score: the score that a search would give. `source_unknown` and `target_unknown` count unknown tokens.
    """

    number: int  # the number of the pair, from 0
    source: str
    target: str
    source_tokens: tuple[str, ...]
    target_tokens: tuple[str, ...]
    source_unknown: int
    target_unknown: int
    log_prob: float
    score: float
    token_log_probs: tuple[float, ...]

    @property
    def blank(self) -> bool:
        """Whether neither side has a token; the model does not score such a pair."""
        return not (self.source_tokens or self.target_tokens)


_Ids = tuple[Sequence[int], Sequence[int], Sequence[int]]  # source, target and copied ids without `</s>`


def score_pairs(translator: Translator, pairs: Iterable[Pair], available: bool = False) -> Iterator[ScoredPair]:
    """Scores pairs of lines with the models and settings of a translator; one result per pair, in order.

    A translation gets the log-probability and the score that the search gave it, except for rounding: probabilities are
    over all words including `<unk>`, and penalties apply. This is true for equal tokens. Text that is detokenised and
    tokenised again may differ, and so may a line that was translated in pieces, replaced words, and a search with
    candidates, whose probabilities are normalised over the candidates. An empty source or target consists of `</s>`.
    A pair without any token is not scored; its log-probability is 0, like that of the translation of a blank line.
    Pairs are read as `Translator.translate` reads lines; `available` ones, such as those of files, in large windows.
    Raises UsageError for what is not a pair, ResourceError with the line if one pair does not fit into memory.
    """
    loaded, available, numbers = translator.loaded, available or isinstance(pairs, Sequence), itertools.count()
    used = loaded.tokenizers.for_text(translator.config.tokenized)
    sides = (loaded.source_vocabulary, used.source), (loaded.target_vocabulary, used.target)
    split = [partial(words.known_tokens, tokenize=own.tokenize) for words, own in sides]
    most, size = translator.config.batch_size or default_words(1, loaded.device), len(loaded.target_vocabulary)
    limits = replace(translator.limits, words=most, beam=1, scored=size, length_ratio=1.0, keep_weights=False)
    words = most * WINDOW_BATCHES

    def read(texts: Pair) -> tuple[ScoredPair, Sequence[tuple[ScoredPair, _Ids]]]:
        source, target = (tuple(tokens(text)) for tokens, text in zip(split, texts, strict=True))
        ids = loaded.ids(source, target)
        unknown, missing = (list(side).count(UNK_ID) for side in ids[:2])
        pair = ScoredPair(next(numbers), *texts, source, target, unknown, missing, 0.0, 0.0, (0.0,))
        return pair, [] if pair.blank else [(pair, ids)]

    def work(batch: Sequence[tuple[ScoredPair, _Ids]]) -> list[ScoredPair]:
        return in_halves(partial(_force, translator), batch, lambda one: too_much(one[0].number, *one[1][:2]))

    characters, threads = words * _PAIR_CHARACTERS, translator.config.threads
    cut = windows(checked_pairs(pairs), max(1, words // 4), characters, lambda pair: sum(map(len, pair)), available)
    found = in_batches(
        cut, read, work, lambda one: max(map(len, one[1][:2])) + 1, limits, loaded.device, available, threads
    )
    with contextlib.closing(found):
        for pair, scored in found:
            yield scored[0] if scored else pair


@torch.inference_mode()
def _force(translator: Translator, batch: Sequence[tuple[ScoredPair, _Ids]]) -> list[ScoredPair]:
    """Forces the targets of a batch, sorted by decreasing length for `force`."""
    order = sorted(range(len(batch)), key=lambda place: -len(batch[place][1][1]))
    sources, targets, copied = zip(*(batch[place][1] for place in order), strict=True)
    device = translator.loaded.device
    source, mask = (part.to(device) for part in make_source(sources))
    target = make_source(targets)[0].to(device)
    # A copying model also copies from sources without any token, which consist of `</s>`.
    copies = make_source(copied)[0].to(device) if translator.loaded.model.config.copy else None
    lengths = [len(ids) + 1 for ids in targets]
    log_probs, coverage = force(translator.scorer, Sources(source, mask, copies=copies), target, lengths)
    scored = dict[int, ScoredPair]()
    for row, place in enumerate(order):
        gains = log_probs[row, : len(targets[row]) + 1]
        covered = None if coverage is None else coverage[row, : len(sources[row])]
        total, each = float(gains.sum()), tuple(gains.tolist())
        score = translator.scoring.score(total, len(each), covered)
        scored[place] = replace(batch[place][0], log_prob=total, score=score, token_log_probs=each)
    return [scored[place] for place in range(len(batch))]


def read_n_best(n_best: Path, source: Path) -> Iterator[tuple[tuple[str, ...], Pair]]:
    """The fields of each line of a Moses n-best list, and its pair of texts.

    A line is `id ||| text`, then optional features and score, and further fields; the id is the number of the source
    line, from 0. A source line may have no line in the list.
    Raises InputError with file and line for a line that is not an n-best line, for a decreasing id (the sources are
    read in parallel and not kept), and for an id without a source line.
    """
    sources = enumerate(read_lines(source))
    at, text = -1, ""
    for number, line in enumerate(read_lines(n_best), 1):
        where = f"{shown(n_best)}: line {number}"
        fields = tuple(field.removeprefix(" ").removesuffix(" ") for field in line.split("|||"))
        if len(fields) < 2 or not _ID.fullmatch(fields[0].strip(" \t")):
            fix = "write `id ||| translation ||| features ||| score`, the id the number of the source line, from 0"
            raise InputError(f"{where}: not a line of an n-best list; {fix}")
        sentence = int(fields[0])
        if sentence < at:
            raise InputError(f"{where}: id {sentence} comes after id {at}; sort the list by id (sort -s -n -k 1,1)")
        while at < sentence:
            before, (at, text) = at, next(sources, (-1, ""))
            if at < 0:
                raise InputError(
                    f"{where}: id {sentence} needs line {sentence + 1} of {shown(source)}, which has "
                    f"{counted(before + 1, 'line')}; ids count its lines from 0"
                )
        yield fields, (text, fields[1])


def scored_line(given: Sequence[str], pair: ScoredPair, rescore: bool, word_scores: bool) -> str:
    """A line of a list with the features nmtalign= and WordScores=, and with `rescore` with the score of the model."""
    # Marian writes its alignment and its word scores before the features; after these comes the score, a number.
    at = next((at for at in range(2, len(given) - 1) if "=" in given[at] and "=" not in given[at + 1]), 2)
    fields = [*given, *[""] * (at + 1 + rescore - len(given))]
    features = {"nmtalign": (pair.log_prob,), "WordScores": pair.token_log_probs if word_scores else ()}
    for name, values in features.items():
        if values:
            kept = re.sub(rf"(?<!\S){name}=(?:\s+[^\s=]+(?!\S))*\s*", "", fields[at]).strip(" ")
            fields[at] = f"{kept} {name}= {' '.join(map(fixed, values))}".strip(" ")
    if rescore:
        fields[at + 1] = fixed(pair.score)
    return " ||| ".join(fields)


class FileScores:
    """Scores given translations, the lines of a file or of a Moses n-best list, and writes a line for each.

    `lines` counts them, and `tokens` their target tokens with `</s>`. `str` gives a summary.
    """

    end: int = 0
    size: int | None = None  # as `FileTranslation` has them for the display of progress

    def __init__(
        self,
        sources: Sequence[Path],
        target: Path,
        output: Path | BinaryIO,
        config: TranslateConfig,
        n_best: bool = False,
        rescore: bool = False,
        notify: Callable[[str], object] = lambda message: None,
    ) -> None:
        """With `n_best` the target is a list, and with `rescore` its lines are sorted by the scores of the models.

        Raises UsageError for more than one source, for one in JSON, and for what only a search or `align` gives.
        """
        if len(sources) > 1:
            raise UsageError(f"{target}: is scored with one source text, and {len(sources)} are given; give one")
        if config.input_format == "json":
            raise UsageError(f"{target}: is scored with plain text; leave out input_format = json")
        if n_best and config.format == "json":
            raise UsageError(f"{target}: an n-best list gets features in Moses's format; leave out --format json")
        if config.alignment != "none" or config.n_best > 1:
            raise UsageError(f"{target}: is only scored; leave out --alignment (nmtalign align gives it) and --n-best")
        self.lines = self.tokens = 0
        self._source, self._target, self._output, self._config = sources[0], target, output, config
        self._n_best, self._rescore, self._notify = n_best, rescore, notify
        self._unknown, self._log_prob = 0, 0.0

    def __str__(self) -> str:
        mean = self._log_prob / max(self.tokens, 1)
        perplexity = math.exp(-mean) if mean > -700 else math.inf
        return (
            f"{counted(self.lines, 'pair')}, {counted(self.tokens, 'target token')} with </s>: log-probability "
            f"{mean:.4f} per token, perplexity {perplexity:.2f}; {self._unknown / max(self.tokens, 1):.2%} of the "
            "tokens are unknown"
        )

    def left(self) -> str:
        """The end of a message about an interruption."""
        return "" if isinstance(self._output, Path) else f" after {counted(self.lines, 'line')}"

    def run(
        self,
        translator: Translator,
        progress: Callable[["FileScores"], None] = lambda run: None,
        guard: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """Scores all lines; calls `progress` at the start and after each line; a line is written inside `guard()`.

        Raises InputError for files of unequal length, UsageError for files that are clearly exchanged.
        """
        progress(self)
        path = self._output if isinstance(self._output, Path) else None
        opened: AbstractContextManager[Any] = atomic_text(path) if path else nullcontext(self._output)
        available = are_files(self._source, self._target)
        scored = self._scored_list if self._n_best else self._scored_lines
        with opened as stream:
            for text, pair in scored(translator, available):
                with guard():
                    stream.write(f"{text}\n" if path else f"{text}\n".encode())
                    if not available:
                        stream.flush()
                    self.lines += 1
                if not pair.blank:
                    self.tokens += len(pair.token_log_probs)
                    self._unknown += pair.target_unknown
                    self._log_prob += pair.log_prob
                progress(self)

    def _scored_lines(self, translator: Translator, available: bool) -> Iterator[tuple[str, ScoredPair]]:
        paths = self._source, self._target
        pairs = read_pairs(*paths)
        if available:  # pairs of a stream are not delayed
            fits = [translator.loaded.text_fit(side, translator.config.tokenized) for side in (0, 1)]
            pairs = check_pairs(pairs, paths, fits, self._notify)
        for pair in score_pairs(translator, pairs, available):
            yield pair_json(pair) if self._config.format == "json" else pair_line(pair, self._config), pair

    def _scored_list(self, translator: Translator, available: bool) -> Iterator[tuple[str, ScoredPair]]:
        waiting = deque[tuple[str, ...]]()

        def pairs() -> Iterator[Pair]:
            for fields, texts in read_n_best(self._target, self._source):
                waiting.append(fields)
                yield texts

        scored = ((waiting.popleft(), pair) for pair in score_pairs(translator, pairs(), available))
        for _, group in itertools.groupby(scored, key=lambda entry: int(entry[0][0])):
            # Equal scores keep their order.
            for fields, pair in sorted(group, key=lambda entry: -entry[1].score) if self._rescore else group:
                yield scored_line(fields, pair, self._rescore, self._config.word_scores), pair


def pair_line(pair: ScoredPair, config: TranslateConfig) -> str:
    """The log-probability of a given pair, or its score if `config` has another penalty than the default.

    With word scores there are two more columns, separated by tabs: the log-probabilities of the tokens and `</s>`, and
    these tokens, both separated by spaces.
    """
    own, usual = ((one.length_penalty, one.word_penalty, one.coverage_penalty) for one in (config, TranslateConfig()))
    columns = [fixed(pair.log_prob if own == usual else pair.score)]
    if config.word_scores:
        columns += [" ".join(map(fixed, pair.token_log_probs)), " ".join((*pair.target_tokens, EOS))]
    return "\t".join(columns)


def pair_json(pair: ScoredPair) -> str:
    """One line of JSON with all results for a given pair; keys as in `json_line`, with the given target as `target`."""
    return as_json(
        {
            "id": pair.number,
            "source": pair.source,
            "target": pair.target,
            "score": round(pair.score, 6),
            "log_prob": round(pair.log_prob, 6),
            "tokens": list(pair.target_tokens),
            "token_log_probs": [round(value, 6) for value in pair.token_log_probs],
            "source_tokens": list(pair.source_tokens),
            "source_unknown": pair.source_unknown,
            "target_unknown": pair.target_unknown,
        }
    )
