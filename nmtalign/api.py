"""The functions of the Python interface: `import nmtalign` offers them, and loads PyTorch only when one needs it.

Settings are keyword arguments with the names, values and defaults of nmtalign.toml. nmtalign.toml itself is not read.
All errors are subclasses of `nmtalign.NmtalignError`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from nmtalign.errors import FormatError
from nmtalign.model_files import is_aligner
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
from nmtalign.settings.definition import Layer, definitions, naming, resolve
from nmtalign.settings.presets import DEFAULT_PRESET
from nmtalign.settings.training_settings import ModelConfig, TrainingConfig
from nmtalign.settings.workspace import check_keys

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from nmtalign.alignment.aligning import AlignmentSummary, Models
    from nmtalign.alignment.evaluation import LinkComparison
    from nmtalign.alignment.links import AlignmentRecord
    from nmtalign.alignment.translation_table import Lexicon
    from nmtalign.data.corpus_writer import Summary
    from nmtalign.scoring.scoring_run import ScoreResult, Track
    from nmtalign.training.events import Finished, Listener
    from nmtalign.translating.translation import ScoredPair
    from nmtalign.translating.translator import Translator

StrPath = str | Path
T = TypeVar("T")


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
) -> "Summary":
    """Prepares a corpus from parallel texts, as `nmtalign prep` does, and returns its counts.

    `source` and `target` are files that are aligned line by line; without `target`, `source` is a TSV or TMX file with
    both languages. `dev` and `test` are (source, target), or one TSV or TMX file. All files may be compressed.
    `languages` are the codes of the source and the target language, such as ("en", "fr"). `settings` are those of
    section [prep], such as shortlist="30000"; `config` replaces them. `progress` is called with the number of pairs
    that were read, `notify` with the name of each step.

    Raises UsageError for a wrong setting, and if `folder` contains another corpus and `force` is not given. Raises
    InputError for a text that is missing, too short or not UTF-8.
    """
    with _resolved("prepare", PrepConfig, config, settings) as config:
        from nmtalign.data.prepare import prepare as prepare_corpus

        train_text, folder = _paths((source, target)), Path(folder)
        dev_text, test_text = (None if one is None else _paths(one) for one in (dev, test))
        return prepare_corpus(train_text, folder, config, languages, dev_text, test_text, progress, notify, force)


def train(
    data: StrPath,
    folder: StrPath,
    *,
    preset: str = DEFAULT_PRESET,
    force: bool = False,
    listen: "Listener" = lambda event: None,
    stopping: "Callable[[Callable[[str], None]], AbstractContextManager[Any]]" = nullcontext,
    config: tuple[ModelConfig, TrainingConfig] | None = None,
    **settings: Any,
) -> "Finished":
    """Trains a model on the prepared corpus `data`, or resumes the training in `folder`, as `nmtalign train` does.

    `settings` are those of section [train], such as max_time="15m"; they have precedence over those of the preset. With
    init_from="model/" the training starts with the weights of another model, and has its architecture. `config`
    replaces `settings`; `preset` then only names the preset in the model directory. `force` replaces another model in
    `folder`.

    `listen` is called with each event of the training (nmtalign.training.events); those that are recorded are also in
    train.jsonl in `folder`. The last one is returned. `stopping` makes a context around the training from a function
    that ends it at the next update, with a reason. The caller's random generators and number of threads do not change.

    Raises UsageError for a wrong setting and for a folder that contains another model, FormatError if `data` contains
    no corpus, TrainingError if the training cannot continue.
    """
    from nmtalign.training.events import Working

    layers: tuple[Layer, ...] = ()
    if config is None:
        from nmtalign.training.budget import training_layers

        layer = _layer("train", settings, ModelConfig, TrainingConfig)
        layers = training_layers(preset, (layer,), Path(data), Path(folder))
        config = resolve(ModelConfig, *layers), resolve(TrainingConfig, *layers)
    with naming(*layers) if layers else nullcontext():
        listen(Working(0, 0.0, 0.0, "loading PyTorch"))
        from nmtalign.core.devices import keeping_generators
        from nmtalign.data.corpus import Corpus
        from nmtalign.training.distributed import open_world
        from nmtalign.training.trainer import Trainer

        world = open_world(config[1].device)  # the processes that torchrun has started, or the only one
        with world.reporting_once(), keeping_generators(world.device):
            listen(Working(0, 0.0, 0.0, "preparing the model"))
            trainer = Trainer(Corpus.open(Path(data)), Path(folder), preset, *config, listen, force, world)
            with stopping(trainer.stop):
                finished = trainer.run()
            world.close()
    return finished


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
    progress: "Track" = lambda doing, lines: nullcontext(),
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
    from nmtalign.scoring.scoring_run import ScoreRequest, run_scoring

    def text(given: Any) -> Any:
        return Path(given) if isinstance(given, str) else given

    systems = hypotheses if isinstance(hypotheses, Mapping) else {"hypothesis": hypotheses}
    several: Any = references
    if isinstance(references, str | Path) or all(isinstance(line, str) for line in references):
        several = [references]
    with _resolved("score", ScoreConfig, config, settings) as config:
        request = ScoreRequest(
            {name: text(system) for name, system in systems.items()},
            [text(each) for each in several],
            text(source),
            config,
            segment_scores or {},
            text(model),
            translation,
        )
        return run_scoring(request, notify=notify, progress=progress)


def link(source: StrPath, target: StrPath, folder: StrPath = "aligner", **settings: Any) -> Path:
    """Links the words of two texts, as `nmtalign link` does, and returns the file of the links.

    Its lines are those of `nmtalign link --scores`. `folder` gets the aligner, with which `align` aligns other pairs;
    an interrupted call resumes there. `settings` are those of section [link], such as max_time="5m". Raises UsageError
    for a folder with other content, InputError for texts of unequal length.
    """
    layer = _layer("link", settings, LinkConfig)
    config = resolve(LinkConfig, layer)
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
    config = resolve(AlignConfig, _layer("align", settings, AlignConfig))
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
    config = resolve(AerConfig, _layer("aer", settings, AerConfig))
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
    config = resolve(LexiconConfig, _layer("lexicon", settings, LexiconConfig))
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
    config = resolve(ServeConfig, _layer("application", settings, ServeConfig))
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
    config = resolve(ExportConfig, _layer("export_model", settings, ExportConfig))
    from nmtalign.model_directory import export_model as copy_model

    copy_model(Path(model), Path(folder), config.weights, force, [Path(path) for path in average])


def describe(path: StrPath | None = None) -> Mapping[str, Any]:
    """Describes a model directory, a prepared corpus, a word aligner or an alignment file, as `nmtalign info` does.

    Without a path it describes this machine, with a measurement of about a second. All checksums of a model are
    verified. A file of weights that is damaged has the key "damaged". Raises FormatError for anything else, and for
    other damage.
    """
    if path is None:
        from nmtalign.machine import describe_machine

        return describe_machine()
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


@contextmanager
def _resolved(function: str, cls: type[T], config: T | None, settings: Mapping[str, Any]) -> Iterator[T]:
    """Yields `config`, or else the settings of a function, whose errors then name them; raises UsageError."""
    if config is not None:
        yield config
        return
    layer = _layer(function, settings, cls)
    with naming(layer):
        yield resolve(cls, layer)


def _layer(function: str, settings: Mapping[str, Any], *classes: type) -> Layer:
    """The keyword arguments as a layer of settings; raises UsageError for an unknown one."""
    known = [name for cls in classes for name, one in definitions(cls).items() if not one.internal]
    check_keys(f"nmtalign.{function}", settings, known)
    return f"nmtalign.{function}", settings
