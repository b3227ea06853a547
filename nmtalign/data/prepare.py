"""From text files to a prepared corpus: read, drop, tokenise, count, choose the vocabularies, write."""

import dataclasses
import io
import itertools
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmtalign.data.corpus import CORPUS_FILE, SPLITS, Corpus
from nmtalign.data.corpus_checks import CorpusChecks, with_vocabulary
from nmtalign.data.corpus_writer import (
    PairSpool,
    SplitSummary,
    Summary,
    Vocabularies,
    check_begun,
    check_same,
    check_texts,
    publish,
    text_names,
    work_folder,
    write_files,
)
from nmtalign.data.pipeline import CHUNK, Pairs, process_pool, tokenize_pairs, worker_count
from nmtalign.data.screening import NO_TRANSLATION, OtherSets, PrepTally, RawText, screened, set_aside, spooled_lines
from nmtalign.errors import FormatError, InputError, UsageError
from nmtalign.files import CONFIG, disk_errors
from nmtalign.model_directory import check_files, model_config, read_settings
from nmtalign.settings.command_settings import PrepConfig
from nmtalign.settings.definition import SettingError, chooses_vocabulary, pair_of_sizes, resolve, select
from nmtalign.settings.workspace import PathPair
from nmtalign.text.languages import language_code
from nmtalign.text.lines import shown
from nmtalign.text.parallel import ParallelText
from nmtalign.text.tokenizer import SentencePieces, Subwords, Tokenizers, blanks_to_spaces
from nmtalign.text.vocabulary import EOS, UNK, Vocabulary, load_vocabularies

# Text per side from which subword pieces are learned: more changes the pieces little, and both sides together must fit
# in 2 GB. Measured: bpe takes about 6 bytes of memory per byte of text, unigram 21.
SAMPLE_BYTES = {"bpe": 80_000_000, "unigram": 30_000_000}
_THREADS = 4  # fixed: unigram sums over threads, and the model must not depend on the machine
_RARE_CHARACTERS = 0.9995  # share of all characters that get a separate piece, if there are very many kinds


@dataclass(frozen=True)
class GivenWords:
    """What `prep --vocabulary-from` takes from a model directory or from a prepared corpus."""

    folder: Path
    languages: tuple[str, str]
    tokenizers: Tokenizers
    vocabularies: tuple[Vocabulary, Vocabulary]
    settings: Mapping[str, Any]  # those of the `prep` that chose the vocabularies

    @classmethod
    def read(cls, folder: Path) -> "GivenWords":
        """Reads a folder after checking its files; raises FormatError if it is missing, foreign or damaged."""
        if (folder / CONFIG).exists():
            settings = read_settings(folder)
            check_files(folder, settings)
            words = load_vocabularies(folder, model_config(folder, settings))
            languages = settings["source_language"], settings["target_language"]
            return cls(folder, languages, Tokenizers.load(folder), words, settings.get("prep", {}))
        if not folder.is_file() and not (folder / CORPUS_FILE).exists():
            raise FormatError(f"{folder}: contains neither a model ({CONFIG}) nor a prepared corpus ({CORPUS_FILE})")
        corpus = Corpus.open(folder)
        languages = corpus.source_language, corpus.target_language
        words = corpus.source_vocabulary, corpus.target_vocabulary
        return cls(folder, languages, corpus.tokenizers, words, corpus.settings)

    def check(self, output: Path, languages: tuple[str, str]) -> None:
        """Raises UsageError if texts of these languages cannot be prepared with these words in the folder `output`."""
        if output.resolve() == (self.folder.parent if self.folder.is_file() else self.folder).resolve():
            raise SettingError(
                "the new corpus would replace files of this folder; give another one with -o",
                vocabulary_from=str(self.folder),
            )
        source, target = self.languages
        if languages == self.languages:
            return
        if languages == (target, source):
            fix = f"give the {source} text first, then the {target} text"
        else:
            fix = f"give texts in {source} and {target}, or correct --source-language and --target-language"
        raise UsageError(
            f"{self.folder}: its words are those of {source}-{target}, and the texts are {'-'.join(languages)}; {fix}"
        )

    def adopted_by(self, config: PrepConfig) -> PrepConfig:
        """The settings with those that chose these vocabularies; raises FormatError if they are damaged."""
        names = select(PrepConfig, chooses_vocabulary)
        there = {name: self.settings[name] for name in names if name in self.settings}
        try:
            chosen = vars(resolve(PrepConfig, (f"{self.folder}: prep", there)))
        except UsageError as error:
            raise FormatError(str(error)) from None
        return dataclasses.replace(config, **{name: chosen[name] for name in names})


@dataclass(frozen=True)
class _Job:
    """The arguments of all steps."""

    work: Path
    config: PrepConfig
    languages: tuple[str, str]
    regions: tuple[str, str]  # the languages as they were given, which find the texts in files with both
    workers: int
    progress: Callable[[int], None]
    notify: Callable[[str], None]
    checks: CorpusChecks
    words: GivenWords | None = None  # those of a model or of another corpus


def prepare(
    train: PathPair,
    folder: Path,
    config: PrepConfig,
    languages: tuple[str, str],
    dev: PathPair | None = None,
    test: PathPair | None = None,
    progress: Callable[[int], None] = lambda pairs: None,
    notify: Callable[[str], None] = lambda step: None,
    force: bool = False,
) -> Summary:
    """Prepares a corpus in `folder` from texts in two files each, or in one TSV or TMX file: (path, None).

    A corpus of the same text and settings in the folder is replaced when the new one is complete. Another corpus, or
    one with more sets, is replaced only with `force`. Other files in the folder stay.

    Vocabularies come from the training pairs that are kept, or from the model or corpus `config.vocabulary_from`. Every
    pair of dev and test is kept, with its raw text. The folder also gets their text files if they are set aside from
    the training text, or come from one file.
    `progress` is called with the number of training pairs read so far, `notify` with the name of each step. The files
    are the same for any number of `config.workers`. Memory contains the counts of the different words and 4 bytes per
    training pair, not the text.

    Raises InputError for text that cannot be used or of which no pair is left, UsageError for subword sizes that the
    text cannot give and for a corpus that would be lost, ResourceError if the folder cannot be written.
    """
    regions, languages = languages, (language_code(languages[0]), language_code(languages[1]))
    words = GivenWords.read(Path(config.vocabulary_from)) if config.vocabulary_from else None
    if words:
        words.check(folder, languages)
        config = words.adopted_by(config)
    given = {name: pair for name, pair in (("train", train), ("dev", dev), ("test", test)) if pair is not None}
    aside = [name for name, lines in (("dev", config.dev_lines), ("test", config.test_lines)) if lines]
    if double := next((name for name in aside if name in given), None):
        rule = f"there is a {double} text, too; leave out one of the two"
        raise SettingError(rule, **{f"{double}_lines": getattr(config, f"{double}_lines")})
    written = [name for name, pair in given.items() if name != "train" and pair[1] is None]
    names = text_names([*aside, *written], languages)
    check_texts(folder, names, itertools.chain.from_iterable(given.values()))
    checks, config = CorpusChecks(given, config, languages, force), with_vocabulary(config, languages)
    if not force:
        check_begun(folder, languages, config.identity(), {*given, *aside})
    with disk_errors(folder), work_folder(folder) as work:
        job = _Job(work, config, languages, regions, worker_count(config.workers), progress, notify, checks, words)
        summary = _prepare(job, given, names)
        if not force:
            check_same(work, folder)
        publish(work, folder)
    return summary


def _prepare(job: _Job, given: Mapping[str, PathPair], names: Mapping[str, tuple[str, str]]) -> Summary:
    """`names` are the names of the text files that the folder gets, by set."""
    texts = {name: ParallelText(*pair, job.regions, job.config.columns) for name, pair in given.items()}
    tallies = {name: PrepTally() for name in SPLITS if name in texts or name in names}
    raw = {
        name: RawText(job.work, name).write(_read(job, name, texts[name], tallies[name]))
        for name in texts
        if name != "train"
    }
    tokenizers, blocks = _training_blocks(job, texts["train"], raw, tallies["train"])
    spools = {"train": _spool(job, "train", texts["train"].name, tokenizers, blocks, tallies["train"])}
    if job.words is None:
        tokenizers = tokenizers.with_spacing(tallies["train"].spacing)
    for name in list(tallies)[1:]:
        blocks = _in_blocks(iter(raw[name]), tallies[name] if name not in texts else PrepTally())
        origin = texts.get(name, texts["train"]).name
        spools[name] = _spool(job, name, origin, tokenizers, blocks, tallies[name])
    job.notify("choosing the vocabularies")
    vocabularies = job.words.vocabularies if job.words else _vocabularies(job.config, tokenizers, spools["train"])
    tables = {
        name: [side.table(words) for side, words in zip(spool.sides, vocabularies, strict=True)]
        for name, spool in spools.items()
    }
    summary = Summary(
        *job.languages,
        len(vocabularies[0]),
        len(vocabularies[1]),
        settings=job.config.identity(),
        splits={
            name: SplitSummary(
                tallies[name].pairs,
                dict(tallies[name].dropped),
                *(side.summary(table) for side, table in zip(spool.sides, tables[name], strict=True)),
            )
            for name, spool in spools.items()
        },
        texts=names,
    )
    job.checks.finish(summary, tokenizers, vocabularies)
    summary.notes.extend([*(text.note for text in texts.values() if text.note), *job.checks.notes])
    job.notify("writing the corpus")
    write_files(job.work, tokenizers, vocabularies, spools, tables, raw, summary)
    return summary


def _in_blocks(pairs: Iterator[tuple[str, str]], tally: PrepTally) -> Iterator[Pairs]:
    while block := list(itertools.islice(pairs, CHUNK)):
        tally.pairs += len(block)
        yield block


def _read(job: _Job, name: str, text: ParallelText, tally: PrepTally) -> Iterator[Pairs]:
    """The pairs of a text; units that lack a language are counted when all have been read."""
    job.notify(f"reading {name}")
    yield from _in_blocks(job.checks.watch(name, text), tally)
    if text.skipped:
        tally.pairs += text.skipped
        tally.dropped[NO_TRANSLATION] = text.skipped


def _training_blocks(
    job: _Job, text: ParallelText, raw: dict[str, RawText], tally: PrepTally
) -> tuple[Tokenizers, Iterator[Pairs]]:
    """Returns the tokenisers, which are trained first if necessary, and the training pairs to tokenise.

    Adds the sets that are set aside to `raw`, which contains the others.
    """
    others = OtherSets(job.config)
    for other in raw.values() if job.config.clean else ():
        others.add(other)
    blocks = screened(_read(job, "train", text, tally), job.config, job.languages, tally, others)
    if job.config.dev_lines or job.config.test_lines:
        drawn, blocks = set_aside(blocks, job.work, job.config, tally)
        raw |= drawn
    if job.words:
        return job.words.tokenizers, blocks
    if job.config.vocabulary == "word":
        return Tokenizers.moses(*job.languages), blocks
    if job.config.vocabulary == "none":
        return Tokenizers.spaced(*job.languages), blocks
    if job.config.vocabulary == "bytes":
        return Tokenizers.of_bytes(*job.languages), blocks
    spooled = RawText(job.work, "train").write(blocks)
    if not tally.lines:
        raise _nothing_kept(text.name, tally)
    job.notify("learning subword pieces")
    source_pieces, target_pieces = _learn(job, text, spooled)
    tokenizers = Tokenizers(source_pieces, target_pieces, *job.languages)
    job.notify("reading train")
    return tokenizers, _in_blocks(iter(spooled), PrepTally())


def _learn(job: _Job, text: ParallelText, spooled: RawText) -> list[SentencePieces]:
    sizes = pair_of_sizes("size", job.config.size)
    names = [shown(text.source), shown(text.target or text.source)]
    if job.config.joint:
        both = job.work / "train.both.raw"
        with both.open("wb") as stream:
            for path in spooled.paths:
                with path.open("rb") as lines:
                    shutil.copyfileobj(lines, stream)
        return [SentencePieces(_train_pieces(both, job.config.vocabulary, sizes[0], " and ".join(names)))] * 2
    arguments = spooled.paths, [job.config.vocabulary] * 2, sizes, names
    if job.workers == 1:
        return [SentencePieces(model) for model in map(_train_pieces, *arguments)]
    with process_pool(2) as pool:
        return [SentencePieces(model) for model in pool.map(_train_pieces, *arguments)]


def _spool(
    job: _Job, name: str, origin: str, tokenizers: Tokenizers, blocks: Iterator[Pairs], tally: PrepTally
) -> PairSpool:
    """Tokenises the text of a split into temporary files; raises InputError, naming `origin`, if no pair is left."""
    training = name == "train"
    longest = tokenizers.most_tokens(job.config.max_length) if training else None
    spool, read = PairSpool(job.work, name), 0
    for block, chunk in tokenize_pairs(tokenizers, longest, blocks, job.workers, spacing=training):
        tally.spacing.update(chunk.spacing)
        tally.dropped["empty"] += chunk.empty
        tally.dropped["too long"] += chunk.too_long
        spool.append(block, chunk, tally.lines[read : read + len(block)])
        read += len(block)
        if training:
            job.progress(read)
    if not spool.size:
        raise _nothing_kept(origin, tally)
    return spool


def _nothing_kept(names: str, tally: PrepTally) -> InputError:
    if not tally.pairs:
        return InputError(f"{names}: no lines; give files with text")
    reasons = ", ".join(f"{count} {reason}" for reason, count in tally.dropped.items() if count)
    fix = "; raise --max-length (0 = no limit)" if tally.dropped["too long"] else ""
    return InputError(f"{names}: none of the {tally.pairs} pairs is left ({reasons}){fix}")


def _vocabularies(config: PrepConfig, tokenizers: Tokenizers, spool: PairSpool) -> Vocabularies:
    if isinstance(tokenizers.source, Subwords) and isinstance(tokenizers.target, Subwords):
        return _pieces_vocabulary(tokenizers.source), _pieces_vocabulary(tokenizers.target)
    sizes = pair_of_sizes("shortlist", config.shortlist)
    source, target = (
        Vocabulary.shortlist(side.word_counts(), size, config.min_count)
        for side, size in zip(spool.sides, sizes, strict=True)
    )
    return source, target


def _train_pieces(path: Path, kind: str, size: int, name: str) -> bytes:
    """Returns a sentencepiece model that is learned from the raw lines of `path`.

    `kind` is "bpe" or "unigram". The model has `size` - 1 ids, because `</s>` is an id of nmtalign. Of a text larger
    than SAMPLE_BYTES every n-th line is read. The same text gives the same model. Raises
    UsageError that names the text and the sizes that are possible if the text cannot give this one.
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


def _pieces_vocabulary(tokenizer: Subwords) -> Vocabulary:
    """`</s>`, `<unk>`, then the model's pieces by rank, or the bytes."""
    return Vocabulary([EOS, UNK, *(piece for piece in tokenizer.pieces() if piece not in (EOS, UNK))])


def _sample(path: Path, step: int) -> Iterator[str]:
    for number, line in enumerate(spooled_lines(path)):
        if number % step == 0:
            yield blanks_to_spaces(line)


def _size_error(message: str, name: str, size: int) -> UsageError:
    if found := re.search(r"value <= (\d+)", message):
        return SettingError(f"too large for {name}: its text gives at most {int(found[1]) + 1}", size=size)
    if found := re.search(r"required_chars\D*\d+ vs (\d+)", message):
        return SettingError(f"too small for {name}: its characters alone need {int(found[1]) + 1}", size=size)
    return UsageError(f"{name}: sentencepiece cannot learn {size} pieces: {message}")
