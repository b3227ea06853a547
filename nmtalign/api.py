"""The functions of the Python interface: `import nmtalign` offers them, and loads PyTorch only when one needs it.

Settings are keyword arguments with the names, values and defaults of nmtalign.toml. nmtalign.toml itself is not read.
All errors are subclasses of `nmtalign.NmtalignError`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmtalign.errors import FormatError
from nmtalign.model_files import is_aligner, with_first_model
from nmtalign.serving import need_server
from nmtalign.settings.command_settings import (
    AerConfig,
    AlignConfig,
    ExportConfig,
    LexiconConfig,
    LinkConfig,
    PrepConfig,
    ScoreConfig,
    ServeConfig,
    TranslateConfig,
)
from nmtalign.settings.definition import Layer, definitions, naming
from nmtalign.settings.presets import DEFAULT_PRESET, settings_of
from nmtalign.settings.presets import preset as settings_of_preset
from nmtalign.settings.training_settings import ModelConfig, TrainingConfig
from nmtalign.settings.workspace import check_keys

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from nmtalign.alignment.aligning import AlignmentSummary, Models
    from nmtalign.alignment.evaluation import LinkComparison
    from nmtalign.alignment.links import AlignmentRecord
    from nmtalign.alignment.translation_table import Lexicon
    from nmtalign.data.corpus_writer import Summary
    from nmtalign.scoring.scoring_run import ScoreResult
    from nmtalign.training.events import Event, Finished
    from nmtalign.translating.translation import ScoredPair
    from nmtalign.translating.translator import Translator

StrPath = str | Path


def prepare(
    source: StrPath,
    target: StrPath | None,
    folder: StrPath,
    *,
    languages: tuple[str, str],
    dev: StrPath | tuple[StrPath, StrPath] | None = None,
    test: StrPath | tuple[StrPath, StrPath] | None = None,
    force: bool = False,
    **settings: Any,
) -> "Summary":
    """Prepares a corpus from parallel texts, as `nmtalign prep` does, and returns its counts.

    `source` and `target` are files that are aligned line by line; without `target`, `source` is a TSV or TMX file with
    both languages. `dev` and `test` are (source, target), or one TSV or TMX file. All files may be compressed.
    `languages` are the codes of the source and the target language, such as ("en", "fr"). `settings` are those of
    section [prep], such as shortlist="30000". Raises UsageError for a wrong setting, and if `folder` contains another
    corpus and `force` is not given. Raises InputError for a text that is missing, too short or not UTF-8.
    """
    layer = _layer("prepare", settings, PrepConfig)
    config = settings_of(PrepConfig, layer)
    from nmtalign.data.prepare import prepare as prepare_corpus

    dev_texts, test_texts = (None if one is None else _paths(one) for one in (dev, test))
    with naming(layer):
        train_texts = _paths((source, target))
        return prepare_corpus(train_texts, Path(folder), config, languages, dev_texts, test_texts, force=force)


def train(
    data: StrPath,
    folder: StrPath,
    *,
    preset: str = DEFAULT_PRESET,
    restart: bool = False,
    events: "list[Event] | None" = None,
    **settings: Any,
) -> "Finished":
    """Trains a model on the prepared corpus `data`, or resumes the training in `folder`, as `nmtalign train` does.

    `settings` are those of section [train], such as max_time="15m"; they have precedence over those of the preset. With
    init_from="model/" the training starts with the weights of another model, and has its architecture.
    The events of the training are written to train.jsonl in `folder`, and added to the list `events`; the last one is
    returned. `restart` replaces another model in `folder`. Raises UsageError for a wrong setting and for a folder that
    contains another model, FormatError if `data` contains no corpus, TrainingError if the training cannot continue.
    """
    layer = _layer("train", settings, ModelConfig, TrainingConfig)
    layers = with_first_model(((f"preset {preset}", settings_of_preset(preset)), layer), Path(folder))
    settings_of(ModelConfig, *layers), settings_of(TrainingConfig, *layers)  # before PyTorch is imported
    from nmtalign.core.devices import keeping_generators, pick_device
    from nmtalign.data.corpus import Corpus
    from nmtalign.training.budget import fit_preset
    from nmtalign.training.trainer import Trainer

    corpus = Corpus.open(Path(data))
    layers = fit_preset(layers, preset, corpus)
    model_config, config = settings_of(ModelConfig, *layers), settings_of(TrainingConfig, *layers)

    def listen(event: "Event") -> None:
        if events is not None and event.recorded:
            events.append(event)

    with naming(*layers), keeping_generators(pick_device(config.device)):
        return Trainer(corpus, Path(folder), preset, model_config, config, listen, restart).run()


def score(
    hypotheses: StrPath | Sequence[str] | Mapping[str, StrPath | Sequence[str]],
    references: StrPath | Sequence[str] | Sequence[Path | Sequence[str]],
    source: StrPath | Sequence[str] | None = None,
    *,
    model: StrPath | None = None,
    segment_scores: Mapping[str, Sequence[Path | Sequence[float]]] | None = None,
    translation: TranslateConfig | None = None,
    config: ScoreConfig | None = None,
    notify: Callable[[str], None] = lambda message: None,
    progress: Callable[[str, float], AbstractContextManager[Callable[[float], None] | None]] | None = None,
    **settings: Any,
) -> "ScoreResult":
    """Scores one system, or several (a mapping from names to systems), against one or more references.

    A text is the path of a file or a sequence of lines; several references are a list of paths or of such sequences,
    where a path is a `Path`. A system may also be the path of a model directory: the model translates `source`, with
    the settings `translation`. `settings` are those of section [score]: `metrics="bleu,chrf"`, `by_length=True`.
    `segment_scores` has, for each metric that another program computed, one file or one sequence of numbers per system.
    `model` is a model directory or a prepared corpus whose words are known (else those of the models that translate).
    `notify` gets warnings, `progress` is called with (what is done, number of lines) and returns a context whose
    function gets the number of lines done. Raises UsageError for settings that do not go together, InputError if there
    is nothing to score or the numbers of lines differ.
    """
    config = config or settings_of(ScoreConfig, _layer("score", settings, ScoreConfig))
    from nmtalign.scoring.scoring_run import ScoreRequest, run_scoring

    def text(given: Any) -> Any:
        return Path(given) if isinstance(given, str) else given

    systems = hypotheses if isinstance(hypotheses, Mapping) else {"hypothesis": hypotheses}
    several: Any = references
    if isinstance(references, str | Path) or all(isinstance(line, str) for line in references):
        several = [references]
    request = ScoreRequest(
        {name: text(system) for name, system in systems.items()},
        [text(each) for each in several],
        text(source),
        config,
        segment_scores or {},
        text(model),
        translation or TranslateConfig(),
    )
    return run_scoring(request, notify=notify, progress=progress or (lambda doing, lines: nullcontext()))


def link(source: StrPath, target: StrPath, folder: StrPath = "aligner", **settings: Any) -> Path:
    """Links the words of two texts, as `nmtalign link` does, and returns the file of the links.

    Its lines are those of `nmtalign link --scores`. `folder` gets the aligner, with which `align` aligns other pairs;
    an interrupted call resumes there. `settings` are those of section [link], such as max_time="5m". Raises UsageError
    for a folder with other content, InputError for texts of unequal length.
    """
    layer = _layer("link", settings, LinkConfig)
    config = settings_of(LinkConfig, layer)
    from nmtalign.alignment.linking import LinkRun

    with naming(layer):
        run = LinkRun(Path(source), Path(target), Path(folder), config)
        run.run()
    return run.links


def score_pairs(translator: "Translator", pairs: Iterable[tuple[str, str]]) -> "Iterator[ScoredPair]":
    """Yields the log-probability and the score of each pair (source line, target line), in order.

    `log_prob` is the natural logarithm of p(target | source), the sum of the `token_log_probs` of the target tokens and
    of `</s>`; the pair with the highest `score` is the one that a search would prefer. Raises UsageError for what
    is not a pair, ResourceError if a pair does not fit into memory.
    """
    from nmtalign.translating.rescoring import score_pairs as scored_pairs

    return scored_pairs(translator, pairs)


def align(
    models: StrPath | Sequence[StrPath], pairs: Iterable[tuple[str, str]], **settings: Any
) -> "Iterator[AlignmentRecord]":
    """Yields the soft alignment of each pair (source line, target line), in order.

    `models` is the folder of one model, or of `nmtalign link`, or the folders of a forward and a backward model.
    `settings` are those of section [align], such as reading="posterior". Raises UsageError for a model without
    attention and for what is not a pair.
    """
    loaded, config = _aligners(models, settings)
    from nmtalign.alignment.aligning import align as align_with
    from nmtalign.text.lines import checked_pairs

    return align_with(loaded, checked_pairs(pairs), config)


def write_alignments(
    models: StrPath | Sequence[StrPath],
    source: StrPath,
    target: StrPath,
    output: StrPath,
    *,
    resume: bool = False,
    gold: StrPath | None = None,
    gold_base: int | None = None,
    reverse_gold: bool = False,
    **settings: Any,
) -> "AlignmentSummary":
    """Aligns two texts into an HDF5 file, as `nmtalign align -o` does, and returns counts and error rates.

    `models` and `settings` are those of `align`. With `resume` an interrupted file is continued. The links are compared
    with those of `gold`, whose positions count from `gold_base` and have the target first with `reverse_gold`. Raises
    UsageError for a model without attention, InputError for texts of unequal length, ResourceError if the disk is full.
    """
    loaded, config = _aligners(models, settings)
    from nmtalign.alignment.aligning import AlignmentRun

    texts, links = (Path(source), Path(target)), None if gold is None else Path(gold)
    run = AlignmentRun(
        loaded,
        *texts,
        config,
        output=Path(output),
        resume=resume,
        gold=links,
        gold_base=gold_base,
        reverse_gold=reverse_gold,
    )
    with run:
        for _ in run:
            pass
    return run.summary


def _aligners(models: StrPath | Sequence[StrPath], settings: Mapping[str, Any]) -> "tuple[Models, AlignConfig]":
    """The loaded models, and the settings of section [align]."""
    config = settings_of(AlignConfig, _layer("align", settings, AlignConfig))
    from nmtalign.alignment.aligning import load_models

    folders = [Path(models)] if isinstance(models, str | Path) else list(map(Path, models))
    return load_models(folders, config), config


def aer(
    links: Sequence[tuple[str, StrPath]],
    gold: StrPath,
    *,
    source: StrPath | None = None,
    target: StrPath | None = None,
    **settings: Any,
) -> "LinkComparison":
    """Compares files of links, (name, path) each, with gold links: AER, precision, recall and F1.

    `source` and `target` are the texts, with words between spaces. `settings` are those of section [aer], such as
    links_base=1. Raises InputError naming file and line, FormatError for a damaged alignment file.
    """
    config = settings_of(AerConfig, _layer("aer", settings, AerConfig))
    from nmtalign.alignment.evaluation import compare_links

    texts = [None if path is None else Path(path) for path in (source, target)]
    return compare_links([(name, Path(path)) for name, path in links], Path(gold), config, texts[0], texts[1])


def lexicon(
    source: StrPath | Iterable[tuple[str, str]],
    target: StrPath | None = None,
    *,
    links: StrPath | None = None,
    model: StrPath | None = None,
    **settings: Any,
) -> "Lexicon":
    """Makes a translation table p(target word | source word), as `nmtalign lexicon` does.

    The pairs are those of two texts, of a prepared corpus or of an alignment file (`source`), or pairs of tokenised
    lines with words between spaces. `links` is a file of links of the two texts, which are counted; `model` is the
    model or corpus whose tokenisers the texts need, unless tokenized=True. `settings` are those of section [lexicon],
    such as iterations=3. Raises UsageError for what is not a pair, InputError if there are no pairs to learn from.
    """
    config = settings_of(LexiconConfig, _layer("lexicon", settings, LexiconConfig))
    from nmtalign.alignment.model1 import read_bitext
    from nmtalign.alignment.translation_table import learn_lexicon, make_lexicon
    from nmtalign.text.lines import checked_pairs
    from nmtalign.text.tokenizer import Tokenizers

    if not isinstance(source, str | Path):
        return learn_lexicon(read_bitext(checked_pairs(source), Tokenizers.spaced()), config)
    paths = [None if path is None else Path(path) for path in (target, links, model)]
    return make_lexicon(Path(source), paths[0], paths[1], config, paths[2])


def application(
    translators: "Sequence[Translator]", *, notify: Callable[[str], None] = lambda message: None, **settings: Any
) -> "Starlette":
    """Returns the ASGI application of `nmtalign serve`, for uvicorn or another server: `uvicorn module:app`.

    Each translator translates another direction. `settings` are those of section [serve]; a server behind another name
    than localhost needs allowed_hosts="NAME". `notify` is called with one line for each error inside the server. Raises
    UsageError for a wrong setting, for two models of one direction, and if Starlette is missing.
    """
    config = settings_of(ServeConfig, _layer("application", settings, ServeConfig))
    need_server()
    from nmtalign.serving.application import make_application
    from nmtalign.serving.served_models import ServedModels

    return make_application(ServedModels(translators, AlignConfig()), config, notify)


def export_model(
    model: StrPath, folder: StrPath, *, force: bool = False, average: Iterable[StrPath] = (), **settings: Any
) -> None:
    """Writes a small copy of a model, without the files of its training, as `nmtalign export` does.

    `settings` are those of section [export], such as weights="int8". `force` replaces an earlier export in `folder`.
    With `average` the weights are the mean of those of `model` and of these model directories or files of weights.
    Raises UsageError for a wrong setting and for a folder with other files, FormatError for a damaged model.
    """
    config = settings_of(ExportConfig, _layer("export_model", settings, ExportConfig))
    from nmtalign.model_directory import export_model as copy_model

    copy_model(Path(model), Path(folder), config.weights, force, [Path(path) for path in average])


def describe(path: StrPath) -> Mapping[str, Any]:
    """Describes a model directory, a prepared corpus, a word aligner or an alignment file, as `nmtalign info` does.

    All checksums of a model are verified. A file of weights that is damaged has the key "damaged". Raises FormatError
    for anything else, and for other damage.
    """
    path = Path(path)
    if not path.exists():
        raise FormatError(f"{path}: no such file or folder")
    if (path / "config.json").is_file():
        from nmtalign.model_files import describe_model

        return describe_model(path)
    if is_aligner(path):
        from nmtalign.alignment.word_aligner import load_aligner

        return load_aligner(path).facts()
    if (path / "corpus.h5").is_file() or path.name == "corpus.h5":
        from nmtalign.data.corpus import Corpus

        return Corpus.open(path).info()
    if path.is_file():
        from nmtalign.alignment.alignment_file import AlignmentFile

        with AlignmentFile(path) as alignments:
            facts: Mapping[str, Any] = alignments.info()
        return facts
    raise FormatError(f"{path}: contains no model (config.json), prepared corpus (corpus.h5) or word aligner")


def _paths(texts: StrPath | tuple[StrPath, StrPath | None]) -> tuple[Path, Path | None]:
    """(source, target) as paths; the target is None for one file with both languages."""
    source, target = texts if isinstance(texts, tuple) else (texts, None)
    return Path(source), None if target is None else Path(target)


def _layer(function: str, settings: Mapping[str, Any], *classes: type) -> Layer:
    """The keyword arguments as a layer of settings; raises UsageError for an unknown one."""
    known = [name for cls in classes for name, one in definitions(cls).items() if not one.internal]
    check_keys(f"nmtalign.{function}", settings, known)
    return f"nmtalign.{function}", settings
