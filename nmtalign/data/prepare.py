"""From text files to a prepared corpus: read, drop, tokenise, count, choose the vocabularies, write."""

import dataclasses
import io
import itertools
import json
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
    check_replaced,
    check_same,
    check_texts,
    publish,
    text_names,
    work_folder,
    write_files,
)
from nmtalign.data.pipeline import Pairs, blocks_of, process_pool, tokenize_pairs, worker_count
from nmtalign.data.screening import ALWAYS, NO_TRANSLATION, OtherSets, RawText, Screening, spooled_lines
from nmtalign.errors import FormatError, InputError, UsageError
from nmtalign.files import CONFIG, disk_errors
from nmtalign.model_directory import check_files, model_config, read_settings
from nmtalign.settings.command_settings import PrepConfig
from nmtalign.settings.definition import PathPair, SettingError, pair_of_sizes, resolve, select
from nmtalign.text.languages import language_code
from nmtalign.text.lines import shown
from nmtalign.text.parallel import ParallelText
from nmtalign.text.tokenizer import (
    EOS,
    UNK,
    Counts,
    SentencePieces,
    Subwords,
    Tokenizers,
    Vocabulary,
    blanks_to_spaces,
    load_vocabularies,
)

# Text per side from which subword pieces are learned: more changes the pieces little, and both sides together must fit
# in 2 GB. Measured: bpe takes about 6 bytes of memory per byte of text, unigram 21.
SAMPLE_BYTES = {"bpe": 80_000_000, "unigram": 30_000_000}
_THREADS = 4  # fixed: unigram sums over threads, and the model must not depend on the machine
_RARE_CHARACTERS = 0.9995  # share of all characters that get a separate piece, if there are very many kinds


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
    aside = {name: lines for name, lines in (("dev", config.dev_lines), ("test", config.test_lines)) if lines}
    for name in aside.keys() & given.keys():
        rule = f"there is a {name} text, too; leave out one of the two"
        raise SettingError(rule, **{f"{name}_lines": aside[name]})
    written = [name for name, pair in given.items() if name != "train" and pair[1] is None]
    names = text_names([*aside, *written], languages)
    check_texts(folder, names, itertools.chain.from_iterable(given.values()))
    checks, config = CorpusChecks(given, config, languages, force), with_vocabulary(config, languages)
    if not force:
        settings = json.dumps(config.identity(), sort_keys=True)
        known = {"source_language": languages[0], "target_language": languages[1], "settings": settings}
        check_replaced(folder, known, {*given, *aside})
    with disk_errors(folder), work_folder(folder) as work:
        texts = {name: ParallelText(*pair, regions, config.columns) for name, pair in given.items()}
        preparation = _Preparation(work, config, languages, texts, aside, words, checks, progress, notify)
        summary = preparation.run(names)
        if not force:
            check_same(work, folder)
        publish(work, folder)
    return summary


@dataclass(frozen=True)
class GivenWords:
    """What `prep --vocabulary-from` takes from a model directory or from a prepared corpus."""

    folder: Path
    languages: tuple[str, str]
    tokenizers: Tokenizers
    vocabularies: Vocabularies
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
        if languages != self.languages:
            raise UsageError(
                f"{self.folder}: its words are those of {'-'.join(self.languages)}, and the texts are "
                f"{'-'.join(languages)}; give texts in {' and '.join(self.languages)}, in this order, or correct "
                "--source-language and --target-language"
            )

    def adopted_by(self, config: PrepConfig) -> PrepConfig:
        """The settings with those that chose these vocabularies; raises FormatError if they are damaged."""
        names = select(PrepConfig, lambda one: one.of_vocabulary)
        there = {name: self.settings[name] for name in names if name in self.settings}
        try:
            chosen = vars(resolve(PrepConfig, (f"{self.folder}: prep", there)))
        except UsageError as error:
            raise FormatError(str(error)) from None
        return dataclasses.replace(config, **{name: chosen[name] for name in names})


@dataclass
class _Preparation:
    """One `prepare`: the arguments of all steps, and the raw texts of the sets."""

    work: Path
    config: PrepConfig
    languages: tuple[str, str]
    texts: Mapping[str, ParallelText]
    aside: Mapping[str, int]  # the sizes of the sets that are set aside from the training text
    words: GivenWords | None
    checks: CorpusChecks
    progress: Callable[[int], None]
    notify: Callable[[str], None]

    def run(self, names: Mapping[str, tuple[str, str]]) -> Summary:
        """Writes all files into the work folder; `names` are those of the text files that it gets, by set."""
        raw = {name: RawText(self.work, name).write(self._read(name)) for name in SPLITS[1:] if name in self.texts}
        others = OtherSets(self.config)
        for other in raw.values() if self.config.clean else ():
            others.add(other)
        screening = Screening(self.config, self.languages, others)
        blocks = screening.kept(self._read("train"))
        if self.aside:
            drawn, blocks = screening.set_aside(blocks, self.aside, self.work)
            raw |= drawn
        tokenizers, blocks = self._tokenizers(blocks, screening)
        spools, spacing, read = {"train": PairSpool(self.work, "train")}, Counts(), 0
        longest = tokenizers.most_tokens(self.config.max_length)
        for block, chunk in tokenize_pairs(tokenizers, longest, blocks, self._workers, spacing=True):
            spacing.update(chunk.spacing)
            screening.dropped["empty"] += chunk.empty
            screening.dropped["too long"] += chunk.too_long
            spools["train"].append(block, chunk, screening.lines[read : read + len(block)])
            read += len(block)
            self.progress(read)
        if not spools["train"].size:
            raise self._nothing_kept(screening)
        if not self.words:
            tokenizers = tokenizers.with_spacing(spacing)
        for name in (name for name in SPLITS if name in raw):
            spools[name] = PairSpool(self.work, name)
            for block, chunk in tokenize_pairs(tokenizers, None, blocks_of(raw[name]), self._workers):
                spools[name].append(block, chunk)
            if not spools[name].size:
                raise InputError(f"{self.texts[name].name}: no lines; give files with text")
        self.notify("choosing the vocabularies")
        vocabularies = self.words.vocabularies if self.words else self._vocabularies(tokenizers, spools["train"])
        pairs = {name: spool.size for name, spool in spools.items()} | {"train": screening.pairs}
        dropped = {name: dict.fromkeys(ALWAYS, 0) for name in spools} | {"train": dict(screening.dropped)}
        for name, text in self.texts.items():
            if text.skipped:
                pairs[name] += text.skipped
                dropped[name][NO_TRANSLATION] = text.skipped
        summary = Summary(
            *self.languages,
            len(vocabularies[0]),
            len(vocabularies[1]),
            self.config.identity(),
            {
                name: SplitSummary(pairs[name], dropped[name], *spool.summaries(vocabularies))
                for name, spool in spools.items()
            },
            names,
        )
        self.checks.finish(summary, tokenizers, vocabularies)
        summary.notes.extend([*(text.note for text in self.texts.values() if text.note), *self.checks.notes])
        self.notify("writing the corpus")
        paths = {name: text.paths for name, text in raw.items()}
        write_files(self.work, tokenizers, vocabularies, spools, paths, summary, screening.pairs)
        return summary

    @property
    def _workers(self) -> int:
        return worker_count(self.config.workers)

    def _read(self, name: str) -> Iterator[Pairs]:
        self.notify(f"reading {name}")
        return blocks_of(self.checks.watch(name, self.texts[name]))

    def _tokenizers(self, blocks: Iterator[Pairs], screening: Screening) -> tuple[Tokenizers, Iterator[Pairs]]:
        """The tokenisers, which are trained first if necessary, and the training pairs to tokenise."""
        if self.words:
            return self.words.tokenizers, blocks
        match self.config.vocabulary:
            case "word":
                return Tokenizers.moses(*self.languages), blocks
            case "none":
                return Tokenizers.spaced(*self.languages), blocks
            case "bytes":
                return Tokenizers.of_bytes(*self.languages), blocks
        spooled = RawText(self.work, "train").write(blocks)
        if not screening.lines:
            raise self._nothing_kept(screening)
        self.notify("learning subword pieces")
        source, target = self._learn(spooled)
        self.notify("reading train")
        return Tokenizers(source, target, *self.languages), blocks_of(spooled)

    def _learn(self, spooled: RawText) -> list[SentencePieces]:
        kind, sizes, text = self.config.vocabulary, pair_of_sizes("size", self.config.size), self.texts["train"]
        if self.config.joint:
            both = self.work / "train.both.raw"
            with both.open("wb") as stream:
                for path in spooled.paths:
                    with path.open("rb") as lines:
                        shutil.copyfileobj(lines, stream)
            name = " and ".join((shown(text.source), shown(text.target or text.source)))
            return [SentencePieces(_train_pieces(both, kind, sizes[0], name))] * 2
        arguments = spooled.paths, (kind, kind), sizes, (shown(text.source), shown(text.target or text.source))
        if self._workers == 1:
            return [SentencePieces(model) for model in map(_train_pieces, *arguments)]
        with process_pool(2) as pool:
            return [SentencePieces(model) for model in pool.map(_train_pieces, *arguments)]

    def _nothing_kept(self, screening: Screening) -> InputError:
        name, pairs = self.texts["train"].name, screening.pairs + self.texts["train"].skipped
        if not pairs:
            return InputError(f"{name}: no lines; give files with text")
        dropped = screening.dropped | {NO_TRANSLATION: self.texts["train"].skipped}
        reasons = ", ".join(f"{count} {reason}" for reason, count in dropped.items() if count)
        fix = "; raise max_length (0 = no limit)" if screening.dropped["too long"] else ""
        return InputError(f"{name}: none of the {pairs} pairs is left ({reasons}){fix}")

    def _vocabularies(self, tokenizers: Tokenizers, spool: PairSpool) -> Vocabularies:
        if isinstance(tokenizers.source, Subwords) and isinstance(tokenizers.target, Subwords):
            return _pieces_vocabulary(tokenizers.source), _pieces_vocabulary(tokenizers.target)
        sizes = pair_of_sizes("shortlist", self.config.shortlist)
        source, target = (
            Vocabulary.shortlist(counts.items(), size, self.config.min_count)
            for counts, size in zip(spool.counts, sizes, strict=True)
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
