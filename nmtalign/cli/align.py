"""`nmtalign align`: soft alignments of given pairs to HDF5, links to stdout, error rates against gold links."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from nmtalign.cli import align_options as options
from nmtalign.cli.align_options import Task
from nmtalign.cli.common import (
    ConfigOption,
    DeviceOption,
    ModelOption,
    PrecisionOption,
    QuietOption,
    ThreadsOption,
    WhichOption,
    choose_wait_policy,
)
from nmtalign.cli.stopping import Signals
from nmtalign.config import AlignConfig, field_names
from nmtalign.errors import UsageError
from nmtalign.model_files import check_ahead
from nmtalign.workspace import Workspace, load_workspace

STDIN = Path("-")
_DEFAULT_OUTPUT = Path("alignments.h5")


def align(
    source: options.Source = None,
    target: options.Target = None,
    model: ModelOption = None,
    quiet: QuietOption = False,
    forward: options.Forward = None,
    backward: options.Backward = None,
    symmetrize: options.Symmetrize = None,
    links: options.Links = None,
    threshold: options.Threshold = None,
    reading: options.Reading = None,
    temperature: options.Temperature = None,
    drop_end: options.DropEnd = None,
    tokenized: options.Tokenized = False,
    output: options.Output = None,
    resume: options.Resume = False,
    pharaoh: options.Pharaoh = False,
    gold: options.Gold = None,
    gold_base: options.GoldBase = None,
    weights: options.Weights = None,
    format: options.Format = "text",
    batch_size: options.BatchSize = None,
    which: WhichOption = "best",
    device: DeviceOption = None,
    precision: PrecisionOption = None,
    threads: ThreadsOption = None,
    config: ConfigOption = None,
) -> None:
    """Align given sentence pairs: soft alignments to HDF5, hard links to stdout, error rates.

    The model reads each target word in turn (forced decoding), and its
    weights are where it looked: where, not why. Each target word has one
    link, to the source word with the largest weight, or none (NULL) where
    that is </s>. Positions count from 0. Two models, one of each direction,
    align better than one: --symmetrize says how both become one, and their
    weights are read given the word (--reading posterior). Without SRC
    and TGT the test set of the workspace is aligned and compared with its
    gold links.

    Examples:

      nmtalign align

      nmtalign align in.en out.fr -m model/ -o alignments.h5

      nmtalign align in.en out.fr --pharaoh > links.txt

      nmtalign align in.en out.fr --forward en-fr/ --backward fr-en/ --pharaoh > links.txt

      nmtalign align in.en out.fr --reading posterior --pharaoh > links.txt

      nmtalign align test.en test.fr --tokenized --gold test.gold --format json
    """
    _run(locals())


def _run(given_options: Mapping[str, Any]) -> None:
    """Aligns as the options, by their names, say."""
    option = SimpleNamespace(**given_options)
    workspace = load_workspace(option.config)
    _check_models(option)
    settings = _settings(workspace, given_options)
    task = _task(workspace, option)
    choose_wait_policy()
    folders = [option.forward or option.model or workspace.model, *([option.backward] if option.backward else [])]
    check_ahead(folders, option.which)
    with Signals() as signals:
        from nmtalign.alignment.readings import chosen
        from nmtalign.cli.align_job import Job
        from nmtalign.core.devices import use_threads
        from nmtalign.model_directory import load_model

        use_threads(settings.threads)
        models = [
            load_model(folder, device=settings.device, precision=settings.precision, which=option.which)
            for folder in folders
        ]
        settings = chosen(settings, len(models))
        Job(task, tuple(models), settings, option.quiet).run(signals)


def _settings(workspace: Workspace, options: Mapping[str, Any]) -> AlignConfig:
    flags = {name: value for name, value in options.items() if name in field_names(AlignConfig)}
    return workspace.resolve(AlignConfig, "align", flags)


def _check_models(option: SimpleNamespace) -> None:
    """Raises UsageError for options of models that do not go together."""
    if option.forward and option.model:
        raise UsageError("--forward and --model are both given: the forward model is one of them; leave out the other")
    if option.forward and not option.backward:
        raise UsageError("--forward is one of two directions: give --backward DIR too, or the model alone with -m")
    if option.symmetrize and not option.backward:
        raise UsageError("--symmetrize makes one of two directions: give --forward DIR and --backward DIR")


def _task(workspace: Workspace, option: SimpleNamespace) -> Task:
    """Fills in what was not given: the workspace's test set and gold links, and the name of the output."""
    source, target, gold = option.source, option.target, option.gold
    if source is None:
        if "test" not in workspace.pairs:
            raise UsageError(
                "no pairs to align: give SRC TGT, or name a test set in nmtalign.toml "
                '([corpus] test = ["test.en", "test.fr"])'
            )
        source, target = workspace.pairs["test"]
        gold = gold or (None if option.resume else workspace.gold)
    if target is None:
        raise UsageError(f"{source}: one text is given; give the source and its translation: SRC TGT")
    if [source, target, gold].count(STDIN) > 1:
        raise UsageError("only one of SRC, TGT and --gold can be stdin")
    output = option.output
    if output is None and (option.resume or not option.pharaoh):
        output = _DEFAULT_OUTPUT
    if output is not None and (output == STDIN or output.is_dir()):
        raise UsageError(f"{output}: HDF5 needs a file: give a name such as {_DEFAULT_OUTPUT}")
    if output is not None:
        _check_is_not_read(output, (source, target, gold))
    _check_resume(option)
    base = None if option.gold_base is None else int(option.gold_base)
    given = option.gold is not None
    return Task(
        source, target, gold, base, given, output, option.resume, option.pharaoh, option.tokenized, option.format
    )


def _check_is_not_read(output: Path, read: tuple[Path | None, ...]) -> None:
    """Raises UsageError where the output, under whatever name, is a file that is read: it would be replaced."""
    if output.exists() and any(path is not None and path.exists() and output.samefile(path) for path in read):
        raise UsageError(f"{output}: is read, too; give -o another name")


def _check_resume(option: SimpleNamespace) -> None:
    """Raises UsageError for what would see nothing but the rest of the pairs."""
    if option.resume and option.pharaoh:
        raise UsageError(
            "--resume goes on with -o FILE.h5, and --pharaoh would print the rest alone: leave it out, and export "
            "the links afterwards (`nmtalign export`)"
        )
    if option.resume and option.gold:
        raise UsageError(
            "--resume goes on with -o FILE.h5, and --gold would count the rest alone: leave it out, and compare "
            "afterwards (`nmtalign aer`)"
        )
