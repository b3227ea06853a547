"""From text files to a prepared corpus: read, drop, tokenise, count, choose the vocabularies, write."""

import contextlib
import io
import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nmtalign.data import corpus_writer as writer
from nmtalign.data.corpus import CORPUS_FILE, SPLITS, Corpus
from nmtalign.data.corpus_checks import CorpusChecks
from nmtalign.data.pipeline import Pairs, blocks_of, process_count, process_pool, tokenize_pairs
from nmtalign.data.screening import ALWAYS, NO_TRANSLATION, RawText, Screening, spooled_lines
from nmtalign.errors import FormatError, InputError, UsageError
from nmtalign.files import CONFIG
from nmtalign.model_directory import check_files, model_config, read_settings
from nmtalign.settings.command_settings import PrepConfig
from nmtalign.settings.definition import PathPair, SettingError, StrPath, pair_of_sizes, resolve, resolved, select
from nmtalign.text.languages import language_code
from nmtalign.text.lines import shown
from nmtalign.text.parallel import ParallelText, split_folders
from nmtalign.text.tokenizer import (
    EOS,
    UNK,
    Counts,
    MosesWords,
    SentencePieces,
    Subwords,
    TextBytes,
    Tokenizers,
    Vocabularies,
    Vocabulary,
    blanks_to_spaces,
    load_vocabularies,
)

# Text per side from which subword pieces are learned: more changes the pieces little, and both sides together must fit
# in 2 GB. Measured: bpe takes about 6 bytes of memory per byte of text, unigram 21.
SAMPLE_BYTES = {"bpe": 80_000_000, "unigram": 30_000_000}
_THREADS = 4  # fixed: unigram sums over threads, and the model must not depend on the machine
_Given = tuple[Tokenizers, Vocabularies]  # what `vocabulary_from` gives
_LONGEST = 4192  # bytes; sentencepiece leaves out longer lines
_PARTS = re.compile(".{1,1000} |.{1,1000}")  # the parts of such a line
_RARE_CHARACTERS = 0.9995  # share of all characters that get a separate piece, if there are very many kinds


def prepare(
    source: StrPath,
    target: StrPath | None,
    folder: StrPath,
    *,
    languages: tuple[str, str],
    dev: StrPath | tuple[StrPath, StrPath | None] | None = None,
    test: StrPath | tuple[StrPath, StrPath | None] | None = None,
    force: bool = False,
    progress: Callable[[int], None] = lambda pairs: None,
    notify: Callable[[str], None] = lambda step: None,
    config: PrepConfig | None = None,
    **settings: Any,
) -> writer.Summary:
    """Prepares a corpus from parallel texts, as `nmtalign prep` does, and returns its counts.

    `source` and `target` are files that are aligned line by line; without `target`, `source` is one TSV, TMX or Parquet
    file with both languages, or the folder of a data set. `dev` and `test` are (source, target), or one such file.
    Those of a data set are used if no others are given or set aside. Text files may be compressed. `languages` are the
    codes of the source and the target language, such as ("en", "fr"). `settings` are those of section [prep], such as
    shortlist="30000"; `config` replaces them. `progress` is called with the number of pairs that were read, `notify`
    with the name of each step.

    A corpus of the same text and settings in the folder is replaced when the new one is complete. Another corpus, or
    one with more sets, is replaced only with `force`. Other files in the folder stay. It also gets the text files of
    dev and test if they are set aside from the training text, or come from one file. The files are the same for any
    number of workers. Memory contains the counts of the different words and 4 bytes per training pair.

    Raises InputError for text that is missing, not UTF-8, or has no usable pair, UsageError for a wrong setting,
    for subword sizes that the text cannot give and for a corpus that would be lost, ResourceError if the folder cannot
    be written.
    """
    folder, sets = Path(folder), {"train": (source, target), "dev": dev, "test": test}
    with resolved("prepare", PrepConfig, config, settings) as config:
        aside = {name: lines for name, lines in (("dev", config.dev_lines), ("test", config.test_lines)) if lines}
        texts = {name: _paths(text) for name, text in sets.items() if text is not None}
        if target is None and (splits := split_folders(Path(source))):
            found = {name: _paths(path) for name, path in splits.items() if name not in aside}
            found |= {name: pair for name, pair in texts.items() if name != "train"}
            texts = {name: found[name] for name in SPLITS if name in found}
        regions, languages = languages, (language_code(languages[0]), language_code(languages[1]))
        given, config = _given_words(config, folder, languages) if config.vocabulary_from else (None, config)
        for name in aside.keys() & texts.keys():
            rule = f"there is a {name} text, too; leave out one of the two"
            raise SettingError(rule, **{f"{name}_lines": aside[name]})
        written = [*aside, *(name for name, pair in texts.items() if name != "train" and pair[1] is None)]
        inputs = [*itertools.chain.from_iterable(texts.values())]
        names = writer.text_names(folder, written, languages, inputs)
        checks = CorpusChecks(texts, config, languages, force)
        if not force:
            known = {"source_language": languages[0], "target_language": languages[1]}
            if not checks.by_text:
                known["settings"] = json.dumps(checks.config.identity(), sort_keys=True)
            writer.check_replaced(folder, known, {*texts, *aside})
        with writer.corpus_files(folder, force, inputs) as work:
            parallel = {name: ParallelText(*pair, regions, config.columns) for name, pair in texts.items()}
            return _Preparation(work, languages, parallel, checks, progress, notify).run(given, aside, names)


def _paths(texts: StrPath | tuple[StrPath, StrPath | None]) -> PathPair:
    """(source, target) as paths; the target is None for one file with both languages."""
    source, target = (texts, None) if isinstance(texts, str | Path) else texts
    return Path(source), None if target is None else Path(target)


def _given_words(config: PrepConfig, output: Path, languages: tuple[str, str]) -> tuple[_Given, PrepConfig]:
    """What `config.vocabulary_from`, a model directory or a prepared corpus, gives, and the settings with its own.

    Raises FormatError if there is none, UsageError if its languages are others or `output` would replace its files.
    """
    folder = Path(config.vocabulary_from)
    if output.resolve() == (folder.parent if folder.is_file() else folder).resolve():
        rule = "the new corpus would replace files of this folder; give another one with -o"
        raise SettingError(rule, vocabulary_from=str(folder))
    if (folder / CONFIG).exists():
        model = read_settings(folder)
        check_files(folder, model)
        known = model["source_language"], model["target_language"]
        given = Tokenizers.load(folder), load_vocabularies(folder, model_config(folder, model))
        recorded = model["prep"]
    elif folder.name == CORPUS_FILE or (folder / CORPUS_FILE).exists():
        corpus = Corpus.open(folder)
        known = corpus.source_language, corpus.target_language
        given, recorded = (corpus.tokenizers, (corpus.source_vocabulary, corpus.target_vocabulary)), corpus.settings
    else:
        raise FormatError(f"{folder}: contains neither a model ({CONFIG}) nor a corpus ({CORPUS_FILE}); give either")
    if languages != known:
        fix = f"give texts in {' and '.join(known)}, in this order, or correct --source-language and --target-language"
        found = f"its words are those of {'-'.join(known)}, and the texts are {'-'.join(languages)}"
        raise UsageError(f"{folder}: {found}; {fix}")
    names = select(PrepConfig, lambda one: one.of_vocabulary)
    try:
        layer = f"{folder}: prep", {name: recorded[name] for name in names if name in recorded}
        chosen = vars(resolve(PrepConfig, layer))
    except UsageError as error:
        raise FormatError(str(error)) from None
    return given, replace(config, **{name: chosen[name] for name in names})


@dataclass
class _Preparation:
    """The steps of one `prepare`, from the texts to all files in the work folder."""

    work: Path
    languages: tuple[str, str]
    texts: Mapping[str, ParallelText]
    checks: CorpusChecks
    progress: Callable[[int], None]
    notify: Callable[[str], None]

    def __post_init__(self) -> None:
        self.config, self.workers = self.checks.config, process_count(self.checks.config.workers)

    def run(
        self, given: _Given | None, aside: Mapping[str, int], names: Mapping[str, tuple[str, str]]
    ) -> writer.Summary:
        """Writes all files into the work folder.

        `aside` are the sizes of the sets that are set aside from the training text, `names` the names of the text files
        that the corpus gets, by set.
        """
        # Read the pairs, and drop those that are no training pairs.
        raw = {name: RawText(self.work, name).write(self._read(name)) for name in SPLITS[1:] if name in self.texts}
        screening = Screening(self.config, self.languages)
        for other in raw.values() if self.config.clean else ():
            screening.exclude(other)
        blocks = screening.kept(self._read("train"))
        if aside:
            drawn, blocks = screening.set_aside(blocks, aside, self.work)
            raw |= drawn
        # Tokenise them.
        tokenizers, blocks = (given[0], blocks) if given else self._tokenizers(blocks, screening)
        spools, spacing, read = {"train": writer.PairSpool(self.work, "train")}, Counts(), 0
        longest = tokenizers.most_tokens(self.config.max_length)
        for chunk in tokenize_pairs(tokenizers, longest, blocks, self.workers, spacing=True):
            spacing.update(chunk.spacing)
            screening.dropped.update(chunk.dropped)
            size = len(chunk.kept) + chunk.dropped.total()
            spools["train"].append(chunk, screening.lines[read : read + size])
            read += size
            self.progress(read)
        if not spools["train"].size:
            raise self._nothing_kept(screening)
        if not given and isinstance(tokenizers.target, MosesWords):  # they do not keep the spacing
            spaced = MosesWords(self.languages[1], tokenizers.target.spacing.learn(spacing))
            tokenizers = replace(tokenizers, target=spaced)
        for name in (name for name in SPLITS if name in raw):
            spools[name], is_filled = writer.PairSpool(self.work, name, raw[name].paths), False
            for chunk in tokenize_pairs(tokenizers, None, blocks_of(raw[name]), self.workers):
                spools[name].append(chunk)
                is_filled = is_filled or any(map(min, chunk.source.lengths, chunk.target.lengths))
            if not is_filled:  # the loss of no pair is 0, which no later one improves
                text = self.texts.get(name) or self.texts["train"]
                raise InputError(f"{text.name}: no pair of {name} has text on both sides; give files with text")
        # Choose the vocabularies, and write.
        self.notify("choosing the vocabularies")
        vocabularies = given[1] if given else self._vocabularies(tokenizers, spools["train"])
        splits = {}
        for name, spool in spools.items():
            pairs, dropped = spool.size, dict.fromkeys(ALWAYS, 0)
            if name == "train":
                pairs, dropped = screening.pairs, dict(screening.dropped)
            if name in self.texts and (skipped := self.texts[name].skipped):
                pairs, dropped[NO_TRANSLATION] = pairs + skipped, skipped
            source, target = map(writer.SideSummary.of, spool.counts, vocabularies)
            splits[name] = writer.SplitSummary(pairs, dropped, source, target, spool.size)
        sizes = len(vocabularies[0]), len(vocabularies[1])
        summary = writer.Summary(*self.languages, *sizes, self.config.identity(), splits, names)
        self.checks.finish(summary, tokenizers, vocabularies)
        summary.notes.extend([*(text.note for text in self.texts.values() if text.note), *self.checks.notes])
        self.notify("writing the corpus")
        spools["train"].text_lines = screening.pairs
        writer.write_files(self.work, tokenizers, vocabularies, spools, summary)
        return summary

    def _read(self, name: str) -> Iterator[Pairs]:
        self.notify(f"reading {name}")
        return blocks_of(self.checks.watch(name, self.texts[name]))

    def _tokenizers(self, blocks: Iterator[Pairs], screening: Screening) -> tuple[Tokenizers, Iterator[Pairs]]:
        """The tokenisers, which are trained first if necessary, and the training pairs to tokenise."""
        kind, sides = self.config.vocabulary, self.texts["train"]
        match kind:
            case "word":
                return Tokenizers.moses(*self.languages), blocks
            case "none":
                return Tokenizers.spaced(*self.languages), blocks
            case "bytes":
                return Tokenizers(TextBytes(), TextBytes(), *self.languages), blocks
        spooled = RawText(self.work, "train").write(blocks)
        if not screening.lines:
            raise self._nothing_kept(screening)
        self.notify("learning subword pieces")
        names = shown(sides.source), shown(sides.target or sides.source)
        any_size = self.checks.by_text and not self.config.size
        self.config = self.checks.choose_pieces(len(screening.lines))
        texts: list[tuple[Sequence[Path], str]] = [(spooled.paths, " and ".join(names))]
        if not self.config.joint:
            texts = [([path], name) for path, name in zip(spooled.paths, names, strict=True)]
        sizes = pair_of_sizes("size", self.config.pieces)
        arguments = [(*text, kind, size, any_size) for text, size in zip(texts, sizes, strict=False)]
        with process_pool(2) if self.workers > 1 and len(texts) > 1 else contextlib.nullcontext() as pool:
            learned = (pool.map if pool else map)(_train_pieces, *zip(*arguments, strict=True))
            pieces = [SentencePieces(one) for one in learned]
        if any_size:
            found = dict.fromkeys(str(len(one.pieces()) + 2) for one in pieces)  # with `</s>` and `<unk>`
            self.config = replace(self.config, size=":".join(found))
        self.notify("reading train")
        return Tokenizers(pieces[0], pieces[-1], *self.languages), blocks_of(spooled)

    def _nothing_kept(self, screening: Screening) -> InputError:
        name, skipped = self.texts["train"].name, self.texts["train"].skipped
        if not screening.pairs + skipped:
            return InputError(f"{name}: no lines; give files with text")
        dropped = screening.dropped | {NO_TRANSLATION: skipped}
        reasons = ", ".join(f"{count} {reason}" for reason, count in dropped.items() if count)
        fix = "; raise max_length (0 = no limit)" if screening.dropped["too long"] else ""
        return InputError(f"{name}: no pair is left ({reasons}){fix}")

    def _vocabularies(self, tokenizers: Tokenizers, spool: writer.PairSpool) -> Vocabularies:
        """The most frequent words; of pieces `</s>`, `<unk>`, then the model's pieces by rank, or the bytes."""
        sizes = pair_of_sizes("shortlist", self.config.shortlist)
        source, target = (
            Vocabulary([EOS, UNK, *(piece for piece in tokenizer.pieces() if piece not in (EOS, UNK))])
            if isinstance(tokenizer, Subwords)
            else Vocabulary.shortlist(counts.items(), size, self.config.min_count)
            for tokenizer, counts, size in zip((tokenizers.source, tokenizers.target), spool.counts, sizes, strict=True)
        )
        return source, target


def _train_pieces(paths: Sequence[Path], name: str, kind: str, size: int, any_size: bool) -> bytes:
    """Returns a sentencepiece model that is learned from the raw lines of files, which messages call `name`.

    `kind` is "bpe" or "unigram". The model has `size` - 1 ids, because `</s>` is an id of nmtalign. Of a text larger
    than SAMPLE_BYTES every n-th line is read. The same text gives the same model. If the text cannot give this size,
    `any_size` takes the nearest one that is possible; else raises UsageError that names the text and that size.
    """
    import sentencepiece

    step = max(1, -(-sum(path.stat().st_size for path in paths) // SAMPLE_BYTES[kind]))
    # A complete list: sentencepiece would replace an interruption of an iterator by an error of sentencepiece.
    sample, lines = list[str](), itertools.chain.from_iterable(map(spooled_lines, paths))
    for line in map(blanks_to_spaces, itertools.islice(lines, 0, None, step)):
        sample += _PARTS.findall(line) if len(line.encode()) > _LONGEST else (line,)
    characters = set(itertools.chain.from_iterable(sample))
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sample),
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
        if most := re.search(r"value <= (\d+)", str(error)):
            possible, rule = int(most[1]) + 1, f"too large for {name}: its text gives at most "
        elif least := re.search(r"required_chars\D*\d+ vs (\d+)", str(error)):
            possible, rule = int(least[1]) + 1, f"too small for {name}: its characters alone need "
        else:
            raise SettingError(f"sentencepiece cannot learn {size} pieces from {name}: {error}", size=size) from None
        if any_size:
            return _train_pieces(paths, name, kind, possible, any_size=possible < size)
        raise SettingError(f"{rule}{possible}", size=size) from None
    return model.getvalue()
