"""From text files to a prepared corpus: read, drop, tokenise, count, choose the vocabularies, write."""

import contextlib
import dataclasses
import itertools
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from nmtalign.data.corpus import SIDES
from nmtalign.data.corpus_writer import (
    Tables,
    Vocabularies,
    check_begun,
    check_same,
    publish,
    work_folder,
    write_corpus,
    write_files,
)
from nmtalign.data.pair_spool import PairSpool, SeenPairs, SplitSummary, Summary
from nmtalign.data.pipeline import CHUNK, LengthLimit, Pairs, process_pool, tokenize_pairs, worker_count
from nmtalign.data.subwords import pieces_vocabulary, spooled_lines, train_pieces
from nmtalign.errors import InputError
from nmtalign.files import disk_errors
from nmtalign.settings.command_settings import PrepConfig
from nmtalign.settings.definition import pair_of_sizes
from nmtalign.text.lines import read_pairs, shown
from nmtalign.text.spacing import Counts
from nmtalign.text.tokenizer import SentencePieces, Tokenizers
from nmtalign.text.vocabulary import Vocabulary

PathPair = tuple[Path, Path]


@dataclass
class PrepTally:
    """The numbers of pairs read and dropped, and the positions of spaces in the target text."""

    pairs: int = 0
    empty: int = 0
    duplicate: int = 0
    too_long: int = 0
    spacing: Counts = field(default_factory=Counter)
    # Training only: the lines, from 0, of the pairs that were not dropped for their raw text.
    lines: "array[int]" = field(default_factory=lambda: array("i"))

    def dropped(self) -> dict[str, int]:
        """Reasons and counts, in the words of the summary."""
        return {"empty": self.empty, "duplicate": self.duplicate, "too long": self.too_long}


@dataclass(frozen=True)
class _Job:
    """The arguments of all steps."""

    work: Path
    config: PrepConfig
    languages: tuple[str, str]
    workers: int
    progress: Callable[[int], None]
    notify: Callable[[str], None]


def prepare(
    train: PathPair,
    folder: Path,
    config: PrepConfig,
    languages: tuple[str, str],
    dev: PathPair | None = None,
    test: PathPair | None = None,
    progress: Callable[[int], None] | None = None,
    notify: Callable[[str], None] | None = None,
    force: bool = False,
) -> Summary:
    """Prepares a corpus in `folder`.

    A corpus of the same text and settings in the folder is replaced when the new one is complete. Another corpus, or
    one with more sets, is replaced only with `force`. Other files in the folder stay.

    Vocabularies come from the training pairs that are kept. Every pair of dev and test is kept, with its raw text.
    `progress` is called with the number of training pairs read so far, `notify` with the name of each step. The files
    are the same for any number of `config.workers`. Memory: the counts of the different words and 4 bytes a training
    pair, not the text.

    Raises InputError for text that cannot be used or of which nothing is left, UsageError for subword sizes that the
    text cannot give and for a corpus that would be lost, ResourceError where the folder cannot be written.
    """
    given = {name: pair for name, pair in (("train", train), ("dev", dev), ("test", test)) if pair is not None}
    if not force:
        check_begun(folder, languages, _settings(config), given)
    with disk_errors(folder), work_folder(folder) as work:
        job = _Job(
            work,
            config,
            languages,
            worker_count(config.workers),
            progress or (lambda pairs: None),
            notify or (lambda step: None),
        )
        summary = _prepare(job, given)
        if not force:
            check_same(work, folder)
        publish(work, folder)
    return summary


def _prepare(job: _Job, given: dict[str, PathPair]) -> Summary:
    tallies = {name: PrepTally() for name in given}
    tokenizers, blocks = _training_blocks(job, given["train"], tallies["train"])
    spools = {"train": _spool(job, "train", tokenizers, blocks, tallies["train"])}
    _check_kept(given["train"], spools["train"], tallies["train"])
    tokenizers = tokenizers.with_spacing(tallies["train"].spacing)
    for name in list(given)[1:]:
        raw = _blocks(read_pairs(*given[name]), tallies[name])
        spools[name] = _spool(job, name, tokenizers, raw, tallies[name])
        _check_kept(given[name], spools[name], tallies[name])
    job.notify("choosing the vocabularies")
    vocabularies = _vocabularies(job.config, tokenizers, spools["train"])
    tables: dict[str, Tables] = {
        name: tuple(side.table(words) for side, words in zip(spool.sides, vocabularies, strict=True))
        for name, spool in spools.items()
    }
    source_language, target_language = job.languages
    summary = Summary(
        source_language=source_language,
        target_language=target_language,
        source_vocabulary_size=len(vocabularies[0]),
        target_vocabulary_size=len(vocabularies[1]),
        settings=_settings(job.config),
        splits={
            name: SplitSummary(
                tallies[name].pairs,
                tallies[name].dropped(),
                *(side.summary(table) for side, table in zip(spool.sides, tables[name], strict=True)),
            )
            for name, spool in spools.items()
        },
    )
    job.notify("writing the corpus")
    write_files(job.work, tokenizers, vocabularies, summary)
    write_corpus(job.work, tokenizers, spools, tables, summary)
    return summary


def _settings(config: PrepConfig) -> dict[str, object]:
    """The settings that decide what is in the corpus (the number of processes does not)."""
    return {key: value for key, value in dataclasses.asdict(config).items() if key != "workers"}


def _blocks(pairs: Iterator[tuple[str, str]], tally: PrepTally) -> Iterator[Pairs]:
    while block := list(itertools.islice(pairs, CHUNK)):
        tally.pairs += len(block)
        yield block


def _screened(blocks: Iterator[Pairs], tally: PrepTally, drop_duplicates: bool) -> Iterator[Pairs]:
    """Drops pairs with a blank side and repeated pairs, which the raw text shows."""
    seen = SeenPairs()
    line = 0
    for block in blocks:
        numbers = [number for number, pair in enumerate(block, line) if pair[0].strip() and pair[1].strip()]
        full = [block[number - line] for number in numbers]
        tally.empty += len(block) - len(full)
        if drop_duplicates and full:
            first_time = seen.first_time(full)
            tally.duplicate += first_time.count(False)
            full = list(itertools.compress(full, first_time))
            numbers = list(itertools.compress(numbers, first_time))
        tally.lines.extend(numbers)
        line += len(block)
        yield full


def _training_blocks(job: _Job, train: PathPair, tally: PrepTally) -> tuple[Tokenizers, Iterator[Pairs]]:
    """The tokenisers, trained first where necessary, and the training pairs to tokenise."""
    job.notify("reading train")
    blocks = _screened(_blocks(read_pairs(*train), tally), tally, job.config.drop_duplicates)
    if job.config.vocabulary == "word":
        return Tokenizers.moses(*job.languages), blocks
    if job.config.vocabulary == "none":
        return Tokenizers.spaced(*job.languages), blocks
    raw = [job.work / f"train.{side}.raw" for side in SIDES]
    lines = 0
    with (
        raw[0].open("w", encoding="utf-8", newline="\n") as source,
        raw[1].open("w", encoding="utf-8", newline="\n") as target,
    ):
        for block in blocks:
            source.writelines(f"{line}\n" for line, _ in block)
            target.writelines(f"{line}\n" for _, line in block)
            lines += len(block)
    if not lines:
        raise _nothing_kept(train, tally)
    job.notify("learning subword pieces")
    source_pieces, target_pieces = _learn(job, train, raw)
    tokenizers = Tokenizers(source_pieces, target_pieces, *job.languages)
    job.notify("reading train")
    return tokenizers, _blocks(zip(*map(spooled_lines, raw), strict=True), PrepTally())


def _learn(job: _Job, train: PathPair, raw: list[Path]) -> list[SentencePieces]:
    sizes = pair_of_sizes("size", job.config.size)
    names = tuple(map(shown, train))
    arguments = raw, [job.config.vocabulary] * 2, sizes, names
    if job.workers == 1:
        return [SentencePieces(model) for model in map(train_pieces, *arguments)]
    with process_pool(2) as pool:
        return [SentencePieces(model) for model in pool.map(train_pieces, *arguments)]


def _spool(job: _Job, name: str, tokenizers: Tokenizers, blocks: Iterator[Pairs], tally: PrepTally) -> PairSpool:
    training = name == "train"
    if not training:
        job.notify(f"reading {name}")
    limit = LengthLimit(job.config.max_length) if training else LengthLimit(keep_empty=True)
    read = 0
    with contextlib.closing(PairSpool(job.work, name, with_text=not training)) as spool:
        for block, chunk in tokenize_pairs(tokenizers, limit, blocks, job.workers, spacing=training):
            tally.spacing.update(chunk.spacing)
            tally.empty += chunk.empty
            tally.too_long += chunk.too_long
            for number, side in enumerate(spool.sides):
                side.append((chunk.source, chunk.target)[number], [block[kept][number] for kept in chunk.kept])
            if training:
                spool.append_lines([tally.lines[read + kept] for kept in chunk.kept])
                job.progress(read + len(block))
            read += len(block)
    return spool


def _check_kept(paths: PathPair, spool: PairSpool, tally: PrepTally) -> None:
    if not spool.source.sentences:
        raise _nothing_kept(paths, tally)


def _nothing_kept(paths: PathPair, tally: PrepTally) -> InputError:
    names = " and ".join(map(shown, paths))
    if not tally.pairs:
        return InputError(f"{names}: no lines; give files with text")
    reasons = ", ".join(f"{count} {reason}" for reason, count in tally.dropped().items() if count)
    mend = "; raise --max-length (0 = no limit)" if tally.too_long else ""
    return InputError(f"{names}: none of the {tally.pairs} pairs is left ({reasons}){mend}")


def _vocabularies(config: PrepConfig, tokenizers: Tokenizers, spool: PairSpool) -> Vocabularies:
    if isinstance(tokenizers.source, SentencePieces) and isinstance(tokenizers.target, SentencePieces):
        return pieces_vocabulary(tokenizers.source), pieces_vocabulary(tokenizers.target)
    source_size, target_size = pair_of_sizes("shortlist", config.shortlist)
    return (
        Vocabulary.shortlist(spool.source.word_counts(), source_size, config.min_count),
        Vocabulary.shortlist(spool.target.word_counts(), target_size, config.min_count),
    )
