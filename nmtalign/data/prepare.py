"""From text files to a prepared corpus: read, drop, tokenise, count, choose the vocabularies, write."""

import contextlib
import dataclasses
import io
import itertools
import re
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
from nmtalign.errors import InputError, UsageError
from nmtalign.files import disk_errors
from nmtalign.settings.command_settings import PrepConfig
from nmtalign.settings.definition import SettingError, pair_of_sizes
from nmtalign.text.lines import read_pairs, shown
from nmtalign.text.spacing import Counts
from nmtalign.text.tokenizer import SentencePieces, Tokenizers, blanks_to_spaces
from nmtalign.text.vocabulary import EOS, UNK, Vocabulary

PathPair = tuple[Path, Path]

# Text per side from which subword pieces are learned: more changes the pieces little, and both sides together must fit
# in 2 GB. Measured: bpe takes about 6 bytes of memory per byte of text, unigram 21.
SAMPLE_BYTES = {"bpe": 80_000_000, "unigram": 30_000_000}
_THREADS = 4  # fixed: unigram sums over threads, and the model must not depend on the machine
_RARE_CHARACTERS = 0.9995  # share of all characters that get a separate piece, if there are very many kinds


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
    are the same for any number of `config.workers`. Memory contains the counts of the different words and 4 bytes per
    training pair, not the text.

    Raises InputError for text that cannot be used or of which no pair is left, UsageError for subword sizes that the
    text cannot give and for a corpus that would be lost, ResourceError if the folder cannot be written.
    """
    given = {name: pair for name, pair in (("train", train), ("dev", dev), ("test", test)) if pair is not None}
    if not force:
        check_begun(folder, languages, _settings(config), given)
    with disk_errors(folder), work_folder(folder) as work:
        workers = worker_count(config.workers)
        job = _Job(work, config, languages, workers, progress or (lambda pairs: None), notify or (lambda step: None))
        summary = _prepare(job, given)
        if not force:
            check_same(work, folder)
        publish(work, folder)
    return summary


def _prepare(job: _Job, given: dict[str, PathPair]) -> Summary:
    tallies = {name: PrepTally() for name in given}
    tokenizers, blocks = _training_blocks(job, given["train"], tallies["train"])
    spools = {"train": _spool(job, "train", given["train"], tokenizers, blocks, tallies["train"])}
    tokenizers = tokenizers.with_spacing(tallies["train"].spacing)
    for name in list(given)[1:]:
        blocks = _blocks(read_pairs(*given[name]), tallies[name])
        spools[name] = _spool(job, name, given[name], tokenizers, blocks, tallies[name])
    job.notify("choosing the vocabularies")
    vocabularies = _vocabularies(job.config, tokenizers, spools["train"])
    tables: dict[str, Tables] = {
        name: tuple(side.table(words) for side, words in zip(spool.sides, vocabularies, strict=True))
        for name, spool in spools.items()
    }
    summary = Summary(
        *job.languages,
        len(vocabularies[0]),
        len(vocabularies[1]),
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
    """The settings that determine the corpus (the number of processes does not)."""
    return {key: value for key, value in dataclasses.asdict(config).items() if key != "workers"}


def _blocks(pairs: Iterator[tuple[str, str]], tally: PrepTally) -> Iterator[Pairs]:
    while block := list(itertools.islice(pairs, CHUNK)):
        tally.pairs += len(block)
        yield block


def _screened(blocks: Iterator[Pairs], tally: PrepTally, drop_duplicates: bool) -> Iterator[Pairs]:
    """Drops pairs with a blank side, and repeated pairs if `drop_duplicates` is set."""
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
    """Returns the tokenisers, which are trained first if necessary, and the training pairs to tokenise."""
    job.notify("reading train")
    blocks = _screened(_blocks(read_pairs(*train), tally), tally, job.config.drop_duplicates)
    if job.config.vocabulary == "word":
        return Tokenizers.moses(*job.languages), blocks
    if job.config.vocabulary == "none":
        return Tokenizers.spaced(*job.languages), blocks
    raw = [job.work / f"train.{side}.raw" for side in SIDES]
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(path.open("w", encoding="utf-8", newline="\n")) for path in raw]
        for block in blocks:
            for side, stream in enumerate(streams):
                stream.writelines(f"{pair[side]}\n" for pair in block)
    if not tally.lines:
        raise _nothing_kept(train, tally)
    job.notify("learning subword pieces")
    source_pieces, target_pieces = _learn(job, train, raw)
    tokenizers = Tokenizers(source_pieces, target_pieces, *job.languages)
    job.notify("reading train")
    return tokenizers, _blocks(zip(*map(_spooled_lines, raw), strict=True), PrepTally())


def _learn(job: _Job, train: PathPair, raw: list[Path]) -> list[SentencePieces]:
    sizes = pair_of_sizes("size", job.config.size)
    names = tuple(map(shown, train))
    arguments = raw, [job.config.vocabulary] * 2, sizes, names
    if job.workers == 1:
        return [SentencePieces(model) for model in map(_train_pieces, *arguments)]
    with process_pool(2) as pool:
        return [SentencePieces(model) for model in pool.map(_train_pieces, *arguments)]


def _spool(
    job: _Job, name: str, paths: PathPair, tokenizers: Tokenizers, blocks: Iterator[Pairs], tally: PrepTally
) -> PairSpool:
    """Tokenises the text of a split into temporary files; raises InputError if no pair is left."""
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
            for number, (side, part) in enumerate(zip(spool.sides, (chunk.source, chunk.target), strict=True)):
                side.append(part, () if training else [block[kept][number] for kept in chunk.kept])
            if training:
                spool.append_lines([tally.lines[read + kept] for kept in chunk.kept])
                job.progress(read + len(block))
            read += len(block)
    if not spool.source.sentences:
        raise _nothing_kept(paths, tally)
    return spool


def _nothing_kept(paths: PathPair, tally: PrepTally) -> InputError:
    names = " and ".join(map(shown, paths))
    if not tally.pairs:
        return InputError(f"{names}: no lines; give files with text")
    reasons = ", ".join(f"{count} {reason}" for reason, count in tally.dropped().items() if count)
    fix = "; raise --max-length (0 = no limit)" if tally.too_long else ""
    return InputError(f"{names}: none of the {tally.pairs} pairs is left ({reasons}){fix}")


def _vocabularies(config: PrepConfig, tokenizers: Tokenizers, spool: PairSpool) -> Vocabularies:
    if isinstance(tokenizers.source, SentencePieces) and isinstance(tokenizers.target, SentencePieces):
        return _pieces_vocabulary(tokenizers.source), _pieces_vocabulary(tokenizers.target)
    sizes = pair_of_sizes("shortlist", config.shortlist)
    source, target = (
        Vocabulary.shortlist(side.word_counts(), size, config.min_count)
        for side, size in zip(spool.sides, sizes, strict=True)
    )
    return source, target


def _spooled_lines(path: Path) -> Iterator[str]:
    """The lines of a temporary file, ended only by `\\n`."""
    with path.open(encoding="utf-8", newline="\n") as stream:
        for line in stream:
            yield line[:-1]


def _train_pieces(path: Path, kind: str, size: int, name: str) -> bytes:
    """Returns a sentencepiece model that is learned from the raw lines of `path`.

    `kind` is "bpe" or "unigram". The model has `size` - 1 ids, because `</s>` is an id of nmtalign. Of a text larger
    than SAMPLE_BYTES every n-th line is read. The same text gives the same model. Raises UsageError naming the text and
    the sizes that are possible.
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


def _pieces_vocabulary(tokenizer: SentencePieces) -> Vocabulary:
    """`</s>`, `<unk>`, then the model's pieces by rank."""
    return Vocabulary([EOS, UNK, *(piece for piece in tokenizer.pieces() if piece not in (EOS, UNK))])


def _sample(path: Path, step: int) -> Iterator[str]:
    for number, line in enumerate(_spooled_lines(path)):
        if number % step == 0:
            yield blanks_to_spaces(line)


def _size_error(message: str, name: str, size: int) -> UsageError:
    if found := re.search(r"value <= (\d+)", message):
        return SettingError(f"too large for {name}: its text gives at most {int(found[1]) + 1}", size=size)
    if found := re.search(r"required_chars\D*\d+ vs (\d+)", message):
        return SettingError(f"too small for {name}: its characters alone need {int(found[1]) + 1}", size=size)
    return UsageError(f"{name}: sentencepiece cannot learn {size} pieces: {message}")
