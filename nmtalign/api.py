"""The functions of the Python interface that join several parts of the package; the others are where their work is.

`import nmtalign` offers all of them, and loads PyTorch only when one needs it.
Settings are keyword arguments with the names, values and defaults of nmtalign.toml. nmtalign.toml itself is not read.
All errors are subclasses of `nmtalign.NmtalignError`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TextIO

from nmtalign.errors import FormatError, UsageError
from nmtalign.files import check_other, is_aligner
from nmtalign.settings.command_settings import AlignConfig, ExportConfig, ServeConfig, TranslateConfig, ViewConfig
from nmtalign.settings.definition import Layer, StrPath, argument_layer, naming, resolve, resolved
from nmtalign.settings.presets import AUTO, DEFAULT_PRESET
from nmtalign.settings.training_settings import ModelConfig, TrainingConfig

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from nmtalign.alignment.aligning import AlignmentRun, AlignmentSummary
    from nmtalign.alignment.export_formats import TextFormat
    from nmtalign.alignment.links import AlignmentRecord
    from nmtalign.training.events import Finished, Listener
    from nmtalign.translating.file_translation import FileTranslation
    from nmtalign.translating.rescoring import FileScores
    from nmtalign.translating.translator import Translator


def train(
    data: StrPath,
    folder: StrPath,
    *,
    preset: str = DEFAULT_PRESET,
    force: bool = False,
    listen: "Listener" = lambda event: None,
    stopping: "Callable[[Callable[[str], None]], AbstractContextManager[Any]]" = nullcontext,
    setting_layers: tuple[Layer, ...] | None = None,
    **settings: Any,
) -> "Finished":
    """Trains a model on the prepared corpus `data`, or resumes the training in `folder`, as `nmtalign train` does.

    `settings` are those of section [train], such as max_time="15m"; they have precedence over those of the preset. With
    init_from="model/" the training starts with the weights of another model, and has its architecture. The preset
    "auto" chooses the rest by corpus, budget and speed. `setting_layers` (nmtalign.training.budget.training_layers)
    replace preset and `settings`. `force` replaces another model in `folder`.

    `listen` is called with each event of the training (nmtalign.training.events); those that are recorded are also in
    train.jsonl in `folder`. The last one is returned. `stopping(stop)` makes a context around the training, in which
    `stop(reason)` ends it with a checkpoint. The caller's random generators and number of threads do not change.

    Raises UsageError for a wrong setting and for a folder that contains another model, FormatError if `data` contains
    no corpus, TrainingError if the training cannot continue.
    """
    from nmtalign.training.budget import training_layers
    from nmtalign.training.events import Working

    given = (argument_layer("train", settings, ModelConfig, TrainingConfig),)
    layers = setting_layers or training_layers(preset, given, Path(data))
    with naming(*layers):
        _, config = resolve(ModelConfig, *layers), resolve(TrainingConfig, *layers)
        listen(Working(0, 0.0, 0.0, "loading PyTorch"))
        from nmtalign.data.corpus import Corpus
        from nmtalign.training.distributed import open_world
        from nmtalign.training.dry_run import choose_settings
        from nmtalign.training.trainer import Trainer
        from nmtalign.training.updates import TrainingSetup

        world = open_world(config.device)  # the processes that torchrun has started, or the only one
        with world.reporting_once():
            listen(Working(0, 0.0, 0.0, "preparing the model"))
            corpus, note = Corpus.open(Path(data)), ""
            if preset == AUTO:
                chosen = choose_settings(layers, corpus, Path(folder), world, force) if world.is_main else (layers, "")
                layers, note = world.all_gather(chosen)[0]
            configs = resolve(ModelConfig, *layers), resolve(TrainingConfig, *layers)
            trainer = Trainer(TrainingSetup(corpus, Path(folder), *configs, world), preset, listen, force, note)
            with stopping(trainer.stop):
                finished = trainer.run()
            world.close()
    return finished


def translate_files(
    models: StrPath | Sequence[StrPath],
    inputs: StrPath | Sequence[StrPath],
    output: "StrPath | BinaryIO",
    *,
    target: StrPath | None = None,
    n_best_list: StrPath | None = None,
    rescore: bool = False,
    resume: bool = False,
    save_alignments: StrPath | None = None,
    shard: str | None = None,
    config: TranslateConfig | None = None,
    notify: Callable[[str], None] = lambda message: None,
    progress: "Callable[[FileTranslation | FileScores], None]" = lambda run: None,
    guard: Callable[[], AbstractContextManager[None]] = nullcontext,
    **settings: Any,
) -> "FileTranslation | FileScores":
    """Translates files as `nmtalign translate` does: one line out for each line in. The result counts the lines.

    Several `models` form an ensemble; each is a folder, or a file of weights in it. The input `-` is standard input.
    `output` is a file or an open stream of bytes. With `resume` an interrupted file is continued. A `shard` such as
    "1/8" is one block of the lines. `save_alignments` is an HDF5 file for the attention weights. With `target` the
    lines of this file are scored as the translations of the only input, and with `n_best_list` those of a Moses list,
    which `rescore` sorts by the new scores. `settings` are those of section [translate], such as beam=5; `config` are
    the same as an object. `notify` gets each warning, `progress` the counts after each line, and a line is written
    inside `guard()`. Raises UsageError for a wrong setting, InputError for an input that cannot be read, ResourceError
    if the disk or the memory is full.
    """
    from nmtalign.text.lines import Shard
    from nmtalign.translating.file_translation import FileTranslation, Inputs, writes_lists
    from nmtalign.translating.rescoring import FileScores
    from nmtalign.translating.translator import Translator, load_models

    scores = {"--target": target, "--n-best-list": n_best_list}
    others = {"--resume": resume, "--save-alignments": save_alignments, "--shard": shard}
    scored = [name for name, value in scores.items() if value]
    if clash := scored[1:] or [name for name, value in others.items() if value and scored]:
        raise UsageError(f"{scored[0]} scores given translations; leave out {clash[0]}")
    if rescore and not n_best_list:
        raise UsageError("--rescore sorts an n-best list: give --n-best-list FILE")
    folders, paths, given = _several(models), _several(inputs), n_best_list or target
    output, saved = Path(output) if isinstance(output, str) else output, save_alignments and Path(save_alignments)
    for place in (output, saved):
        if isinstance(place, Path):
            check_other(place, [*paths, Path(given)] if given else paths)
    with resolved("translate_files", TranslateConfig, config, settings) as config:
        run: FileTranslation | FileScores
        if config.markup is not None:
            from nmtalign.translating.documents import DocumentTranslation

            lists = writes_lists(config) or "json" in (config.format, config.input_format)
            if lists or given or resume or saved or shard or len(paths) > 1:
                more = "n-best lists, JSON, word scores, alignments, --target, --resume, --shard and further files"
                raise UsageError(f"--markup translates one document; leave out {more}")
            run = DocumentTranslation(Inputs(paths), output, config, notify=notify)
        elif given is None:
            texts = Inputs(paths, config.input_format, None if shard is None else Shard.parse(shard))
            run = FileTranslation(texts, output, config, resume, saved or None, notify)
        else:
            run = FileScores(paths, Path(given), output, config, n_best_list is not None, rescore, notify)
        if not (resume and isinstance(run, FileTranslation) and run.is_done(folders)):
            wanted = bool(saved) or config.alignment != "none" or bool(config.markup and not config.aligner)
            translator = Translator(load_models(folders, config), config, alignments=wanted)
            for notice in translator.notices():
                notify(notice)
            run.run(translator, progress, guard)
    return run


def align(
    models: StrPath | Sequence[StrPath],
    pairs: Iterable[tuple[str, str]],
    *,
    config: AlignConfig | None = None,
    **settings: Any,
) -> "Iterator[AlignmentRecord]":
    """Yields the soft alignment of each pair (source line, target line), in order.

    `models` is one model, or a forward and a backward one, each a folder or a file of weights in it, or the folder of
    `nmtalign link`, whose aligner stays open for the next call. `settings` are those of section [align], such as
    reading="posterior". Raises UsageError for a model without attention and for an item that is not a pair.
    """
    with resolved("align", AlignConfig, config, settings) as config:
        from nmtalign.alignment.aligning import align as align_with
        from nmtalign.alignment.aligning import load_models
        from nmtalign.text.lines import checked_pairs

        return align_with(load_models(_several(models), config), checked_pairs(pairs), config)


def align_files(
    models: StrPath | Sequence[StrPath],
    source: StrPath,
    target: StrPath,
    output: StrPath | None = None,
    *,
    resume: bool = False,
    shard: str | None = None,
    watch: "Callable[[AlignmentRun], Iterable[AlignmentRecord]]" = iter,
    notify: Callable[[str], object] = lambda message: None,
    config: AlignConfig | None = None,
    **settings: Any,
) -> "AlignmentSummary":
    """Aligns two texts, into an HDF5 file if there is an `output`, and returns counts; `aer` compares the file.

    `models` and `settings` are those of `align`. With `resume` an interrupted file is continued. A `shard` such as
    "1/8" is one block of the lines. `watch` is called with the run, and yields its records, for example to print them
    or to show the progress; `notify` is called with warnings. Raises UsageError for a model without attention,
    InputError for texts of unequal length, ResourceError if the disk is full.
    """
    with resolved("align_files", AlignConfig, config, settings) as config:
        from nmtalign.alignment.aligning import AlignmentRun, load_models
        from nmtalign.text.lines import Shard

        texts, place = (Path(source), Path(target)), None if output is None else Path(output)
        block = None if shard is None else Shard.parse(shard)
        if place is not None:
            check_other(place, texts)
        elif resume:
            raise UsageError("--resume continues a file of alignments: give its name as output, too")
        loaded = load_models(_several(models), config)
        run = AlignmentRun(loaded, *texts, config, output=place, resume=resume, notify=notify, shard=block)
        return run.run(watch)


def view(
    inputs: StrPath | Sequence[StrPath | tuple[str, StrPath]],
    output: StrPath | None = None,
    *,
    live: bool = False,
    models: StrPath | Sequence[StrPath] = (),
    sentence: str | int = "",
    gold: StrPath | None = None,
    title: str = "",
    colour: bool = False,
    notify: Callable[[str], None] = lambda message: None,
    config: ViewConfig | None = None,
    **settings: Any,
) -> str:
    """Draws alignments or learning curves, or writes the live page, as `nmtalign view` does; returns terminal text.

    `inputs` are alignment files, or model directories (learning curves), each with or without a name. `output` is a
    page (.html) or a figure (.png, .svg, .pdf); then the text is empty. `sentence` are numbers from 0: 3 or "3,7-9".
    With `live` the page runs `models`, one with attention and perhaps one without; `inputs` are the two texts of a test
    set, or nothing. `settings` are those of section [view]. `colour` allows 256 colours in the text; `notify` is called
    with one line for each remark. Raises UsageError for an unknown ending and for a sentence that a file does not have.
    """
    listed = [inputs] if isinstance(inputs, str | Path) else inputs
    files = [(one[0], Path(one[1])) if isinstance(one, tuple) else (Path(one).stem, Path(one)) for one in listed]
    path, links = (None if one is None else Path(one) for one in (output, gold))
    with resolved("view", ViewConfig, config, settings) as config:
        if bool(models) != live:
            raise UsageError("the live page runs models: give both --live and --model")
        if live and (sentence != "" or gold):
            raise UsageError("the live page translates any sentence: leave out --sentence and --gold")
        if live:
            from nmtalign.live import write_live_page

            write_live_page(_several(models), [text for _, text in files], path, title, config.limit, notify)
            return ""
        if not files:
            raise UsageError("there is nothing to draw; give at least one alignment file or model")
        from nmtalign.viewing.drawing import draw_inputs

        return draw_inputs(files, path, config, str(sentence), links, title, colour, notify)


def application(
    translators: "Sequence[Translator]", *, notify: Callable[[str], None] = lambda message: None, **settings: Any
) -> "Starlette":
    """Returns the ASGI application of `nmtalign serve`, for uvicorn or another server: `uvicorn module:app`.

    Each translator translates another direction. `settings` are those of section [serve]; a server behind another name
    than localhost needs allowed_hosts="NAME". `notify` is called with one line for each error inside the server. Raises
    UsageError for a wrong setting, for two models of one direction, and if Starlette is missing.
    """
    config = resolve(ServeConfig, argument_layer("application", settings, ServeConfig))
    _need_server()
    from nmtalign.serving.application import make_application
    from nmtalign.serving.served_models import ServedModels

    return make_application(ServedModels(translators, AlignConfig()), config, notify)


def serve(
    models: StrPath | Sequence[StrPath],
    *,
    config: ServeConfig | None = None,
    translate: TranslateConfig | None = None,
    align: AlignConfig | None = None,
    notify: Callable[[str], None] = lambda message: None,
    ready: Callable[[str, str], None] = lambda address, directions: None,
    stopping: "Callable[[Callable[[str], None]], AbstractContextManager[Any]]" = nullcontext,
    **settings: Any,
) -> None:
    """Serves models over HTTP, as `nmtalign serve` does, until SIGINT or SIGTERM; `application` is for other servers.

    Each model translates another direction; the folder of `nmtalign link` aligns. `settings` are those of the sections
    [serve] and [translate], such as port=8080 and beam=5; `config`, `translate` and `align` are the same as objects.
    `ready` is called with the address and the directions when requests are answered. `stopping(stop)` makes a context
    around the server, in which `stop(reason)` ends it. Raises UsageError for a wrong setting, for two models of one
    direction, and if Starlette or uvicorn is missing, and ResourceError for a port that is taken.
    """
    layer = argument_layer("serve", settings, ServeConfig, TranslateConfig)
    config, translate = config or resolve(ServeConfig, layer), translate or resolve(TranslateConfig, layer)
    _need_server()
    import asyncio

    from nmtalign.alignment.word_aligner import load_aligner
    from nmtalign.serving.application import answer, bind, make_application, make_server, url_of
    from nmtalign.serving.served_models import ServedModels
    from nmtalign.translating.translator import Translator, load_models

    folders = _several(models)
    translating = [folder for folder in folders if not is_aligner(folder)]
    with naming(layer) if settings else nullcontext():
        if (translate.lexicon or translate.glossary or translate.aligner) and len(translating) > 1:
            raise UsageError("a lexicon, glossary or aligner is for one direction: serve only one model with it")
        with bind(config) as bound:  # before the models are loaded, which takes seconds; requests wait meanwhile
            aligners = [load_aligner(folder) for folder in folders if folder not in translating]
            translators = [Translator(model, translate) for model in load_models(translating, translate)]
            served = ServedModels(translators, align or AlignConfig(), aligners)
            for notice in translators[0].notices() if translators else ():
                notify(notice)
            host = str(bound.getsockname()[0])
            server = make_server(make_application(served, config, notify, host), config)
            with stopping(lambda reason: setattr(server, "should_exit", True)):
                ready(url_of(bound), ", ".join(served.directions()))
                if not (host.startswith("127.") or host == "::1"):
                    notify("other machines can reach this server, and it has no password")
                asyncio.run(answer(server, bound, notify))


def export(
    path: StrPath,
    output: "StrPath | TextIO",
    *,
    format: "TextFormat | Literal['ctranslate2'] | None" = None,  # noqa: A002
    average: StrPath | Sequence[StrPath] = (),
    force: bool = False,
    config: ExportConfig | None = None,
    **settings: Any,
) -> None:
    """Writes an alignment file in another format, or a small copy of a model, as `nmtalign export` does.

    The lines of an alignment file are written to `output`, a file or an open stream; `format` is "pharaoh" (the
    default) or "json". The copy of the model directory `path` is the folder `output`, without the files that only
    training needs, or with `format` = "ctranslate2" a model for CTranslate2; `force` replaces an earlier one. With
    `average` its weights are the mean of those of `path` and of these models or files of weights. `settings` are those
    of section [export], as weights="int8". Raises UsageError for wrong settings or folders, FormatError for damage.
    """
    with resolved("export", ExportConfig, config, settings) as config:
        if Path(path).is_dir() or format == "ctranslate2":
            from nmtalign.ctranslate2_model import write_ctranslate2
            from nmtalign.model_directory import export_model, write_copy

            if not isinstance(output, str | Path):
                raise UsageError(f"{path}: the copy of a model needs a folder: give -o FOLDER")
            if format not in (None, "ctranslate2"):
                raise UsageError(f"{path}: a model has no format {format!r}: give ctranslate2, or none")
            write = write_ctranslate2 if format == "ctranslate2" else write_copy
            export_model(Path(path), Path(output), config.weights, force, _several(average) if average else (), write)
            return
        from nmtalign.alignment.export_formats import export_alignments

        if wrong := [name for name, value in (("--average", average), ("--force", force)) if value]:
            raise UsageError(f"{path}: is no model directory; leave out {' and '.join(wrong)}")
        export_alignments(Path(path), Path(output) if isinstance(output, str) else output, format)


def describe(path: StrPath | None = None) -> Mapping[str, Any]:
    """Describes a model directory, a prepared corpus, a word aligner or an alignment file, as `nmtalign info` does.

    Without a path it describes this machine. All checksums of a model are verified. A file of weights that is damaged
    has the key "damaged". Raises FormatError for anything else, and for other damage.
    """
    if path is None:
        from nmtalign.machine import describe_machine

        return describe_machine()
    path = Path(path)
    if not path.exists():
        raise FormatError(f"{path}: no such file or folder")
    if (path / "config.json").is_file():
        from nmtalign.model_directory import describe_model

        return describe_model(path)
    if is_aligner(path):
        from nmtalign.alignment.word_aligner import load_aligner

        return load_aligner(path).facts()
    if (path / "corpus.h5").is_file() or path.name == "corpus.h5":
        from nmtalign.data.corpus import Corpus

        return Corpus.open(path).info()
    if not path.is_dir():
        from nmtalign.alignment.alignment_file import AlignmentFile

        with AlignmentFile(path) as alignments:
            return alignments.info()
    raise FormatError(f"{path}: contains no model (config.json), prepared corpus (corpus.h5) or word aligner")


def _need_server() -> None:
    """Raises UsageError if Starlette or uvicorn is missing; it names what to install."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise UsageError('a server needs Starlette and uvicorn: pip install "nmtalign[serve]"') from None


def _several(paths: StrPath | Sequence[StrPath]) -> tuple[Path, ...]:
    """One path or several as paths; raises UsageError for none."""
    several = (Path(paths),) if isinstance(paths, str | Path) else tuple(map(Path, paths))
    if not several:
        raise UsageError("an empty list of files or folders is given; give at least one")
    return several
