"""The settings of all commands but `train`: configuration classes, whose values are checked when they are made."""

from typing import Any, ClassVar, Literal

from nmtalign.settings.definition import (
    DEVICE_HELP,
    INFERENCE_PRECISION_HELP,
    Device,
    InferencePrecision,
    Rules,
    SettingError,
    Settings,
    byte_count,
    common,
    pair_of_sizes,
    seconds,
    select,
    setting,
    threads_setting,
    two_columns,
)

StoredWeights = Literal["fp32", "int8"]
LinkMethod = Literal["argmax", "threshold"]
Reading = Literal["auto", "current", "shifted", "posterior"]
Markup = Literal["html", "xliff", "srt", "vtt"]
HardSymmetrization = Literal[
    "intersection", "union", "grow-diag", "grow-diag-strict", "grow-diag-final", "grow-diag-final-and"
]
SoftSymmetrization = Literal["mean", "agreement"]
Symmetrization = Literal[HardSymmetrization, SoftSymmetrization]

_GOLD_BASE = "0; 1 if each line has one link"
_PIECES, _BY_TEXT = "8000", "; with subwords, the text decides"
_PIECES_UNSET = _PIECES + _BY_TEXT
_WORDS = ("auto", "word", "none")


def host_names(name: str, text: str) -> list[str]:
    """The names of hosts of "translate.example, *.inside.example"."""
    found = [part.strip() for part in text.split(",") if part.strip()]
    for part in found:
        if "*" in part.removeprefix("*.") and part != "*":
            raise SettingError("give names such as translate.example or *.inside.example", **{name: text})
    return found


def _budget(help: str) -> Any:  # noqa: A002
    return common(None, help, above=0, at_most=1e15, unset="by scale")


class PrepConfig(Settings, section="prep"):
    """How parallel text becomes a prepared corpus (section [prep])."""

    vocabulary: Literal["auto", "word", "bpe", "unigram", "bytes", "none"] = common(
        "auto",
        "word (Moses), bpe or unigram (sentencepiece), bytes, or none: the text is tokenised; auto is word, but "
        "unigram for Chinese, Japanese, Thai, Lao, Khmer, Burmese and Tibetan.",
        of_vocabulary=True,
    )
    shortlist: str = common(
        "30000", "Word ids per side, including </s> and <unk>.", of_vocabulary=True, form=pair_of_sizes, metavar="N|N:M"
    )
    min_count: int = setting(1, "Less frequent words are unknown.", of_vocabulary=True, at_least=1)
    subwords: bool = common(False, "Use subwords that suit the text and its size.", of_vocabulary=True, since="0.3.0")
    size: str = common(
        "", "Subword pieces per side.", of_vocabulary=True, form=pair_of_sizes, metavar="N|N:M", unset=_PIECES_UNSET
    )
    joint: bool | None = setting(
        None, "Both sides have the same pieces.", of_vocabulary=True, unset=f"false{_BY_TEXT}", since="0.2.0"
    )
    vocabulary_from: str = common(
        "", "Model or prepared corpus whose vocabularies and tokenisers to use.", path="MODEL|DATA"
    )
    max_length: int = setting(
        50, "Drop pairs with more tokens on either side (of a bytes vocabulary: 10 times as many bytes); 0 keeps all."
    )
    clean: bool = common(
        False, "Drop training pairs that are probably no translations; count them by reason.", since="0.2.0"
    )
    dev_lines: int = common(
        0, "Set this number of random training pairs aside as dev text.", at_most=10**6, since="0.2.0"
    )
    test_lines: int = common(
        0, "Set this number of random training pairs aside as test text.", at_most=10**6, since="0.2.0"
    )
    columns: str = setting(
        "",
        "Columns of TSV files and tables, by name or number.",
        form=two_columns,
        metavar="SRC,TGT",
        unset="those that the header names, or the only two",
        since="0.2.0",
    )
    drop_duplicates: bool = setting(False, "Drop repeated training pairs.")
    workers: int = setting(0, "Processes that tokenise; 0 starts one per core.", affects="machine")

    needs = (("subwords", (True,), {"vocabulary": ("auto", "unigram", "bpe")}),)
    rules: ClassVar[Rules] = {
        "joint vocabulary": (
            "only subword pieces can be joint",
            lambda own: own.joint and own.vocabulary in ("word", "none"),
        ),
        "joint size": (
            "joint pieces have one size",
            lambda own: own.joint and len({*pair_of_sizes("size", own.pieces)}) > 1,
        ),
    }
    unused: ClassVar[Rules] = {
        "shortlist min_count": ("no piece is left out", lambda own: own.subwords or own.vocabulary not in _WORDS),
        "size": ("only subword pieces have a size", lambda own: own.vocabulary in ("word", "bytes", "none")),
    }

    @property
    def pieces(self) -> str:
        """The number of subword pieces per side, unless the text decides."""
        return self.size or _PIECES

    def identity(self) -> dict[str, object]:
        """The settings that determine the corpus: neither how it is computed nor where its vocabularies are from.

        Settings that earlier versions did not have are left out while they are not used (false, 0, "" or None), so that
        the same text still gives the same corpus.
        """
        chosen = select(PrepConfig, lambda one: one.affects == "result" and not one.is_path)
        values = {name: getattr(self, name) for name in chosen} | {"size": self.pieces}
        return {name: value for name, value in values.items() if value or not chosen[name].since}


class ExportConfig(Settings, section="export"):
    """How `export` stores a model (section [export])."""

    weights: StoredWeights = common("fp32", "For a model: fp32 keeps every bit, int8 is a quarter of the size.")


class TranslateConfig(Settings, section="translate"):
    """How `translate` searches and what it prints (section [translate])."""

    beam: int = common(12, "Width of the beam.", at_least=1)
    search: Literal["beam", "paper"] = setting("beam", "beam, or the search of the paper's released code.")
    length_penalty: float = setting(1.0, "A in score = log-probability / length^A.", at_most=50)
    word_penalty: float = setting(
        0.0,
        "Subtracted for each word from the log-probability; with length_penalty = 1 no translation changes.",
        at_least=-1e6,
        at_most=1e6,
    )
    coverage_penalty: float = setting(0.0, "Penalty for source words with little attention.", at_most=1e6)
    min_length_ratio: float = setting(0.0, "Smallest length, as a multiple of the source length.")
    max_length_ratio: float = setting(
        3.0, "Largest length, as a multiple of the source length.", above=0, at_most=1000, server_only=True
    )
    n_best: int = common(1, "Translations per line; several are a Moses list.", at_least=1, affects="printing")
    sample: bool = setting(False, "Draw words at random instead of searching.")
    temperature: float = setting(1.0, "Divides log-probabilities in sampling; low: less random.", above=0, at_most=1e6)
    top_k: int = setting(0, "Draw from the K most probable words; 0 = all.")
    seed: int = setting(1234, "Seed of sampling.", at_least=-(2**63), at_most=2**63 - 1)
    ensemble: Literal["probability", "log"] = setting(
        "probability", "Whether several models average probabilities or log-probabilities.", loading=True
    )
    allow_unk: bool = setting(False, "Let the search generate <unk>.")
    replace_unk: bool = common(False, "Replace <unk> by its aligned source word or that word's translation.")
    lexicon: str = common("", "Word translations: for replace_unk, or to restrict the search.", path="FILE")
    candidates: int = setting(
        0, "Search only the lexicon's and the N most frequent words; 0 = all. --lexicon sets 2000.", server_only=True
    )
    format: Literal["text", "json"] = common(
        "text", "Print text, or one JSON object per line.", affects="printing", server_only=True
    )
    input_format: Literal["text", "json"] = setting(
        "text", 'Read text, or JSON objects with "text", "prefix" and "phrases".', affects="printing", server_only=True
    )
    word_scores: bool = setting(False, "Also print the log-probability of each word.", affects="printing")
    alignment: Literal["none", "hard", "soft"] = common(
        "none", "Print Moses lists with links i-j or all weights.", affects="printing"
    )
    tokenized: bool = common(
        False, "The text is tokenised: split it at spaces, print tokens.", flags="--tokenized/--raw"
    )
    split_sentences: bool = common(
        False, "Translate each sentence of a line separately.", flags="--split-sentences/--whole-lines"
    )
    glossary: str = common("", "Required translations of terms: source, tab, target in each line.", path="FILE")
    markup: Markup | None = common(
        None,
        "The input is one document: translate its text, and keep its tags, placeholders and time codes.",
        unset="lines of text",
        server_only=True,
        since="0.3.0",
    )
    aligner: str = setting(
        "",
        "Folder of `nmtalign link`, which places the tags; without it the attention does.",
        path="DIR",
        since="0.3.0",
    )
    save_alignments_of: Literal["best", "n-best"] = setting(
        "best",
        "Translations with saved alignments: the best of each line, or all of n_best.",
        affects="printing",
        server_only=True,
        since="0.3.0",
    )
    alignment_type: Literal["float16", "float32"] = setting(
        "float16", "Type of the saved weights.", affects="printing", server_only=True, since="0.3.0"
    )
    batch_size: int = setting(0, "Source words searched together; 0 = automatic.", affects="machine")
    max_source_length: int = setting(500, "Translate longer lines in pieces.", at_least=1, server_only=True)
    max_memory: str = setting(
        "",
        "Memory limit, such as 2G; a search gets at least 64M.",
        form=byte_count,
        metavar="SIZE",
        unset="a tenth of the machine's, or half of what is free on a GPU",
        affects="machine",
        loading=True,
    )
    device: Device = common("auto", DEVICE_HELP, affects="machine", loading=True)
    precision: InferencePrecision = setting("fp32", INFERENCE_PRECISION_HELP, loading=True)
    threads: int = threads_setting(common=True, loading=True)

    rules: ClassVar[Rules] = {
        "min_length_ratio max_length_ratio": (
            "the smallest ratio of lengths must not be above the largest",
            lambda own: own.min_length_ratio > own.max_length_ratio,
        ),
        "n_best beam": (
            "a search finds at most as many translations as the beam is wide",
            lambda own: not own.sample and own.n_best > own.beam,
        ),
        "split_sentences tokenized": (
            "tokenised text is not split; give raw text",
            lambda own: own.split_sentences and own.tokenized,
        ),
        "glossary sample": (
            "a sample cannot be made to contain given phrases",
            lambda own: own.sample and bool(own.glossary),
        ),
        "candidates": (
            "needs a lexicon, too (`nmtalign link` makes one)",
            lambda own: own.candidates > 0 and not own.lexicon,
        ),
    }


class ScoreConfig(Settings, section="score"):
    """What `score` measures and prints (section [score])."""

    by_length: bool = common(False, "Also score by sentence length.")
    length_of: Literal["source", "reference"] = setting("source", "Text whose lengths define the buckets.")
    buckets: str = setting("10,20,30,40,50,60", "Upper ends of the buckets, in words.", metavar="N,...")
    known_words: bool = common(
        False, "Also score only the sentences without unknown words, as in the article's Table 1."
    )
    differences: int = common(0, "Print the N sentences in which the first two systems differ most.")
    metrics: str = common(
        "",
        "Some of bleu, chrf, chrf++, ter (slow), multi-bleu (Moses tokens), or all.",
        unset="bleu,chrf,chrf++",
        metavar="NAME,...",
    )
    lowercase: bool = setting(False, "Lowercase texts before BLEU.")
    tokenize: str = setting(
        "",
        "sacreBLEU's tokeniser for BLEU: 13a, none, intl, char, zh, ja-mecab or ko-mecab.",
        unset="by the target language, 13a for most",
        metavar="NAME",
    )
    target_language: str = setting(
        "",
        "Language of the translations, for the tokenisers of BLEU and multi-bleu.",
        unset="the ending of the reference, or the model's",
        metavar="LANG",
    )
    confidence: bool | None = common(
        None, "Print 95% confidence intervals.", unset="where systems or lengths are compared"
    )
    bootstrap: int = setting(1000, "Bootstrap samples.", at_least=2, at_most=1_000_000)
    trials: int = setting(10_000, "Trials of approximate randomisation.", at_least=1, at_most=1_000_000)
    seed: int = setting(12345, "Seed of the samples.", at_most=2**32 - 1)
    significance: Literal["bs", "ar", "both", "none"] = common(
        "bs", "Paired bootstrap (bs), approximate randomisation (ar), both or none."
    )
    format: Literal["text", "json", "csv"] = common("text", "Format of the result.")
    fail_under: float | None = common(
        None,
        "Exit with 1 if the BLEU (or else the first metric) of a system is lower.",
        at_least=-1e9,
        at_most=1e9,
        unset="no limit",
        affects="printing",
    )


class AlignConfig(Settings, section="align"):
    """How `align` reads the attention weights (section [align])."""

    links: LinkMethod | None = setting(
        None, "How weights become links.", unset="threshold if a threshold is given, else argmax"
    )
    threshold: float = common(0.0, "Smallest weight of a link; 0 = automatic.", at_most=1)
    reading: Reading = common(
        "auto",
        "Weights that align a word: those of its step (current), of the next step of a Transformer (shifted), or given "
        "the word (posterior). auto: current for one model; for two posterior, or shifted for Transformers.",
    )
    symmetrize: Symmetrization | None = common(
        None,
        "How two directions are combined: intersection, union, grow-diag, grow-diag-strict, grow-diag-final, "
        "grow-diag-final-and (of links), mean, agreement (of weights).",
        metavar="METHOD",
        unset="agreement; mean with a word aligner",
        server_only=True,
    )
    batch_size: int = setting(80, "Pairs per batch.", at_least=1, affects="machine")
    alignment_type: Literal["float16", "float32"] = setting(
        "float16", "Type of the stored weights.", affects="printing"
    )
    device: Device = common("auto", DEVICE_HELP, affects="machine", loading=True)
    precision: InferencePrecision = setting("fp32", INFERENCE_PRECISION_HELP, loading=True)
    threads: int = threads_setting(loading=True)
    tokenized: bool = common(False, "The texts are tokenised: split them at spaces.", flags="--tokenized/--raw")


class LinkConfig(Settings, section="link"):
    """How `link` aligns a bitext (section [link])."""

    learn_from: int = common(
        0, "Learn from at most N pairs, evenly spaced over the texts; 0 = as many as fit into memory.", metavar="N"
    )
    tokenized: bool = common(
        False,
        "The texts are tokenised: split them only at spaces. Texts with spaces around their commas are recognised.",
        flags="--tokenized/--raw",
    )
    threads: int = threads_setting()


class AerConfig(Settings, section="aer"):
    """How `aer` reads links and what it prints (section [aer])."""

    gold_base: int | None = common(None, "First position in GOLD.", at_most=1, unset=_GOLD_BASE)
    links_base: int | None = common(None, "First position in LINKS.", at_most=1, unset=_GOLD_BASE)
    reverse_gold: bool = common(False, "GOLD has the target first.", flags="--reverse-gold/--keep-gold")
    reverse_links: bool = setting(False, "LINKS have the target first.")
    format: Literal["text", "json", "csv"] = common("text", "Format of the result.")


class ViewConfig(Settings, section="view"):
    """What `view` draws of alignments, of learning curves, and of the live page (section [view])."""

    gold_base: int | None = common(None, "First position in the gold links.", at_most=1, unset=_GOLD_BASE)
    reverse_gold: bool = common(False, "The gold links have the target first.", flags="--reverse-gold/--keep-gold")
    rank: int = common(0, "Place in the n-best list, from 0, if the file has one.")
    x: Literal["updates", "epochs", "hours"] = common("updates", "The x axis of learning curves.")
    limit: int | None = common(
        None, "Largest number of sentences of a page; 0 = all.", unset="20000; 80 on the live page"
    )
    end: bool = setting(True, "Draw the row and the column of </s>.")
    hard_links: bool = setting(False, "Also draw the hard links of the file.")
    width: int | None = setting(None, "Columns of the terminal.", at_least=10, unset="all")


class SampleConfig(Settings, section="sample"):
    """The size of a sample corpus (section [sample])."""

    pairs: int = common(20_000, "Training pairs.", at_least=1)
    seed: int = common(1, "Another seed gives other sentences.", at_most=2**63 - 1)


class ReproduceConfig(Settings, section="reproduce"):
    """Which experiments of the article are repeated, and what their report contains (section [reproduce])."""

    scale: Literal["tiny", "small", "paper"] = common(
        "small", "Sizes: minutes or hours on a laptop, or the paper's own."
    )
    models: str = common(
        "", "The article's models to train.", unset="all, but none with --systems", metavar="all|none|NAME,..."
    )
    systems: str = common("none", "Systems around the article, compared in one table.", metavar="all|none|NAME,...")
    seeds: int = common(1, "Models of each kind, each with another seed.", at_least=1)
    words: float | None = _budget("Budget of each model: target words, such as 1e7.")
    hours: float | None = _budget("Budget of each model: hours of training.")
    jobs: int = common(1, "Models trained at the same time.", at_least=1)

    rules: ClassVar[Rules] = {
        "words hours": ("give one budget, the same for every model", lambda own: own.words and own.hours),
    }


class ServeConfig(Settings, section="serve"):
    """Where `serve` listens, and what one client may ask for (section [serve])."""

    port: int = common(5000, "Port; 0 chooses a free one.", at_most=65535)
    host: str = common("127.0.0.1", "Address to listen on; the default serves this machine only.")
    allowed_hosts: str = setting(
        "",
        "More names by which clients may address the server, or *.",
        form=host_names,
        metavar="NAME,...",
        unset="localhost, 127.0.0.1, [::1] and the host",
    )
    max_body: str = setting("1M", "Largest body of a request.", form=byte_count, metavar="SIZE")
    max_lines: int = setting(1000, "Largest number of lines of a request.", at_least=1)
    max_characters: int = setting(20_000, "Largest number of characters of a line.", at_least=1)
    max_queue: int = setting(10_000, "Largest number of lines that wait.", at_least=1)
    time_limit: str = common("60s", "Longest time of a request.", form=seconds, metavar="TIME")
    shutdown_time: str = setting(
        "20s", "After Ctrl-C or SIGTERM, answer waiting requests for at most this time.", form=seconds, metavar="TIME"
    )
