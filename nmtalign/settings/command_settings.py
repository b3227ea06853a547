"""The settings of prep, translate and score: frozen dataclasses, validated when they are made."""

import dataclasses
from dataclasses import dataclass
from typing import Literal

from nmtalign.settings.definition import (
    CONFIDENCE,
    DEVICE_HELP,
    INFERENCE_PRECISION_HELP,
    MACHINE,
    MEASURES,
    MODEL,
    SAMPLING,
    SEARCH,
    TABLES,
    TEXT,
    UNKNOWN,
    VOCABULARY,
    Device,
    InferencePrecision,
    SettingError,
    byte_count,
    check_settings,
    pair_of_sizes,
    section,
    seed_setting,
    setting,
    threads_setting,
    two_columns,
)

VocabularyKind = Literal["auto", "word", "bpe", "unigram", "bytes", "none"]
Search = Literal["beam", "paper"]
LengthOf = Literal["source", "reference", "hypothesis"]
Significance = Literal["bs", "ar", "both", "none"]
StoredWeights = Literal["fp32", "int8"]


@section("prep")
@dataclass(frozen=True)
class PrepConfig:
    """How parallel text becomes a prepared corpus (section [prep])."""

    vocabulary: VocabularyKind = setting(
        "auto",
        "word (Moses), bpe or unigram (sentencepiece), bytes, or none: the text is tokenised; auto is word, but "
        "unigram for Chinese, Japanese, Thai, Lao, Khmer and Burmese.",
        VOCABULARY,
        common=True,
    )
    shortlist: str = setting(
        "30000",
        "Word ids per side, including </s> and <unk>.",
        VOCABULARY,
        common=True,
        form=pair_of_sizes,
        metavar="N|N:M",
    )
    min_count: int = setting(1, "Less frequent words are unknown.", VOCABULARY, at_least=1)
    size: str = setting(
        "8000", "Subword pieces per side.", VOCABULARY, common=True, form=pair_of_sizes, metavar="N|N:M"
    )
    joint: bool = setting(False, "Both sides have the same subword pieces.", VOCABULARY, flags="--joint/--separate")
    vocabulary_from: str = setting(
        "",
        "Model or prepared corpus whose vocabularies and tokenisers to use.",
        VOCABULARY,
        common=True,
        is_path=True,
        metavar="MODEL|DATA",
    )
    max_length: int = setting(
        50,
        "Drop pairs with more tokens on either side (of a bytes vocabulary: 10 times as many bytes); 0 keeps all.",
        TEXT,
        common=True,
    )
    clean: bool = setting(
        False, "Drop training pairs that are probably no translations, each reason counted.", TEXT, common=True
    )
    dev_lines: int = setting(
        0, "Set this number of random training pairs aside as dev text.", TEXT, common=True, at_most=10**6
    )
    test_lines: int = setting(
        0, "Set this number of random training pairs aside as test text.", TEXT, common=True, at_most=10**6
    )
    columns: str = setting(
        "",
        "Columns of TSV files, by name or number.",
        TEXT,
        form=two_columns,
        metavar="SRC,TGT",
        unset="those that the header names, or the only two",
    )
    drop_duplicates: bool = setting(
        False, "Drop repeated training pairs.", TEXT, flags="--drop-duplicates/--keep-duplicates"
    )
    workers: int = setting(0, "Processes that tokenise; 0 starts one per core.", MACHINE)

    def __post_init__(self) -> None:
        check_settings(self)
        if self.joint and self.vocabulary in ("word", "none"):
            raise SettingError("only subword pieces can be joint", joint=True, vocabulary=self.vocabulary)
        if self.joint and len({*pair_of_sizes("size", self.size)}) > 1:
            raise SettingError("joint pieces have one size", joint=True, size=self.size)

    def identity(self) -> dict[str, object]:
        """The settings that determine the corpus: not the number of processes, nor the place of the same vocabularies.

        Settings that earlier versions did not have are left out while they have their defaults, so that the same text
        still gives the same corpus.
        """
        later = {"clean": False, "dev_lines": 0, "test_lines": 0, "columns": "", "joint": False}
        return {
            key: value
            for key, value in dataclasses.asdict(self).items()
            if key not in ("workers", "vocabulary_from") and (key not in later or value != later[key])
        }


@section("export")
@dataclass(frozen=True)
class ExportConfig:
    """How `export` stores a model (section [export])."""

    weights: StoredWeights = setting(
        "fp32", "Of a model: fp32 keeps every bit, int8 is a quarter of the size.", MODEL, common=True
    )

    def __post_init__(self) -> None:
        check_settings(self)


@section("translate")
@dataclass(frozen=True)
class TranslateConfig:
    """How `translate` searches and what it prints (section [translate])."""

    beam: int = setting(12, "Width of the beam.", SEARCH, common=True, at_least=1)
    search: Search = setting("beam", "beam, or the search of the paper's released code.", SEARCH)
    length_penalty: float = setting(1.0, "A in score = log-probability / length^A.", SEARCH, common=True, at_most=50)
    word_penalty: float = setting(
        0.0, "Subtracted for each word from the log-probability.", SEARCH, at_least=-1e6, at_most=1e6
    )
    coverage_penalty: float = setting(0.0, "Penalty for source words with little attention.", SEARCH, at_most=1e6)
    min_length_ratio: float = setting(0.0, "Smallest length, as a multiple of the source length.", SEARCH)
    max_length_ratio: float = setting(
        3.0, "Largest length, as a multiple of the source length.", SEARCH, above=0, at_most=1000
    )
    n_best: int = setting(1, "Translations printed per line.", TEXT, common=True, at_least=1)
    sample: bool = setting(False, "Draw words at random instead of searching.", SAMPLING)
    temperature: float = setting(1.0, "Below 1, sampling is sharper.", SAMPLING, above=0, at_most=1e6)
    top_k: int = setting(0, "Draw from the K most probable words; 0 = all.", SAMPLING)
    seed: int = seed_setting("Seed of sampling.", SAMPLING)
    ensemble: Literal["probability", "log"] = setting(
        "probability", "Whether several models average probabilities or log-probabilities.", SEARCH
    )
    allow_unk: bool = setting(False, "Let the search generate <unk>.", UNKNOWN)
    replace_unk: bool = setting(
        False, "Replace <unk> by its aligned source word or that word's translation.", UNKNOWN, common=True
    )
    lexicon: str = setting(
        "",
        "Word translations: for replace_unk, or to restrict the search.",
        UNKNOWN,
        common=True,
        is_path=True,
        metavar="FILE",
    )
    candidates: int = setting(0, "Search only the lexicon's and the N most frequent words; 0 = all.", UNKNOWN)
    format: Literal["text", "json"] = setting("text", "Print text, or one JSON object per line.", TEXT, common=True)
    input_format: Literal["text", "json"] = setting(
        "text", 'Read text, or JSON objects with "text", "prefix" and "phrases".', TEXT
    )
    word_scores: bool = setting(False, "Also print the log-probability of each word.", TEXT)
    alignment: Literal["none", "hard", "soft"] = setting(
        "none", "Also print links i-j or all weights.", TEXT, common=True
    )
    tokenized: bool = setting(
        False, "The text is tokenised: split it at spaces, print tokens.", TEXT, common=True, flags="--tokenized/--raw"
    )
    split_sentences: bool = setting(
        False,
        "Translate each sentence of a line separately.",
        TEXT,
        common=True,
        flags="--split-sentences/--whole-lines",
    )
    glossary: str = setting(
        "",
        "Required translations of terms: source, tab, target in each line.",
        TEXT,
        common=True,
        is_path=True,
        metavar="FILE",
    )
    batch_size: int = setting(0, "Source words searched together; 0 = automatic.", MACHINE)
    max_source_length: int = setting(500, "Translate longer lines in pieces.", SEARCH, at_least=1)
    max_memory: str = setting(
        "", "Memory limit, such as 2G.", MACHINE, form=byte_count, metavar="SIZE", unset="a tenth of the machine's"
    )
    device: Device = setting("auto", DEVICE_HELP, MACHINE, common=True)
    precision: InferencePrecision = setting("fp32", INFERENCE_PRECISION_HELP, MACHINE)
    threads: int = threads_setting()

    def __post_init__(self) -> None:
        check_settings(self)
        least, most = self.min_length_ratio, self.max_length_ratio
        if least > most:
            rule = "the smallest ratio of lengths must not be above the largest"
            raise SettingError(rule, min_length_ratio=least, max_length_ratio=most)
        if not self.sample and self.n_best > self.beam:
            rule = "a search finds at most as many translations as the beam is wide"
            raise SettingError(rule, n_best=self.n_best, beam=self.beam)
        if self.split_sentences and self.tokenized:
            raise SettingError("tokenised text is not split; give raw text", split_sentences=True, tokenized=True)
        if self.sample and self.glossary:
            raise SettingError(
                "a sample cannot be made to contain given phrases", glossary=self.glossary, sample=self.sample
            )
        if self.candidates and not self.lexicon:
            raise SettingError("needs a lexicon, too (`nmtalign lexicon` makes one)", candidates=self.candidates)


@section("score")
@dataclass(frozen=True)
class ScoreConfig:
    """What `score` measures and prints (section [score])."""

    by_length: bool = setting(False, "Also score by sentence length.", TABLES, common=True)
    length_of: LengthOf = setting("source", "Text whose lengths define the buckets.", TABLES)
    buckets: str = setting("10,20,30,40,50,60", "Upper ends of the buckets, in words.", TABLES, metavar="N,...")
    cumulative: bool = setting(
        False, "Each bucket contains all sentences up to its upper end.", TABLES, flags="--cumulative/--apart"
    )
    by_place: bool = setting(
        False, "Also score by the place of sentences in the text and of words in their sentence.", TABLES
    )
    by_frequency: bool = setting(False, "Also print the F1 of words by their frequency in the training text.", TABLES)
    no_unk: bool = setting(
        False,
        "Also score only the sentences without unknown words.",
        TABLES,
        common=True,
        flags="--known-words/--all-words",
    )
    table1: bool = setting(False, "Print the article's Table 1: BLEU with and without unknown words.", TABLES)
    differences: int = setting(
        0, "Print the N sentences in which the first two systems differ most.", TABLES, common=True
    )
    draw_attention: bool = setting(
        False,
        "Draw the attention of the systems in the sentences of --differences.",
        TABLES,
        flags="--attention/--no-attention",
    )
    metrics: str = setting(
        "",
        "Some of bleu, chrf, chrf++, multi-bleu, ter (slow), or all.",
        MEASURES,
        unset="all but ter",
        common=True,
        metavar="NAME,...",
    )
    lowercase: bool = setting(False, "Lowercase texts before BLEU.", MEASURES, flags="--lowercase/--cased")
    tokenize: str = setting(
        "",
        "sacreBLEU's tokeniser for BLEU: 13a, none, intl, char, zh, ja-mecab or ko-mecab.",
        MEASURES,
        unset="by the target language, 13a for most",
        metavar="NAME",
    )
    target_language: str = setting(
        "",
        "Language of the translations, for the tokenisers of BLEU and multi-bleu.",
        MEASURES,
        unset="the ending of the reference, the workspace's or the model's",
        metavar="LANG",
    )
    confidence: bool | None = setting(
        None,
        "Print 95% confidence intervals.",
        CONFIDENCE,
        common=True,
        unset="where systems, lengths or places are compared",
    )
    bootstrap: int = setting(1000, "Bootstrap samples.", CONFIDENCE, at_least=2, at_most=1_000_000)
    trials: int = setting(10_000, "Trials of approximate randomisation.", CONFIDENCE, at_least=1, at_most=1_000_000)
    seed: int | None = setting(
        None, "Seed of the samples.", CONFIDENCE, unset="$SACREBLEU_SEED, or 12345", at_most=2**32 - 1
    )
    significance: Significance = setting(
        "bs", "Paired bootstrap (bs), approximate randomisation (ar), both or none.", CONFIDENCE, common=True
    )
    format: Literal["text", "json", "csv"] = setting("text", "Format of the result.", TABLES, common=True)
    fail_under: float | None = setting(
        None,
        "Exit with 1 if the BLEU (or else the first metric) of a system is lower.",
        TABLES,
        common=True,
        at_least=-1e9,
        at_most=1e9,
        unset="no limit",
    )

    def __post_init__(self) -> None:
        check_settings(self)
