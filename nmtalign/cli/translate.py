"""`nmtalign translate`: raw text in, raw text out, one line for one line."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from nmtalign.checks import naming
from nmtalign.cli import translate_options as options
from nmtalign.cli.common import (
    ConfigOption,
    DeviceOption,
    PrecisionOption,
    QuietOption,
    ThreadsOption,
    WhichOption,
    bound_caches,
    choose_wait_policy,
)
from nmtalign.cli.stopping import Signals
from nmtalign.config import TranslateConfig, field_names
from nmtalign.errors import UsageError
from nmtalign.model_files import check_ahead
from nmtalign.workspace import load_workspace

STDIN = Path("-")


def translate(
    inputs: options.Inputs = None,
    model: options.Models = None,
    output: options.Output = None,
    resume: options.Resume = False,
    quiet: QuietOption = False,
    format: options.Format = None,
    input_format: options.InputFormat = None,
    n_best: options.NBest = None,
    word_scores: options.WordScores = None,
    alignment: options.Alignment = None,
    alignments: options.Alignments = None,
    alignments_of: options.AlignmentsOf = "best",
    weights: options.Weights = "float16",
    tokenized: options.Tokenized = None,
    beam: options.Beam = None,
    search: options.Search = None,
    length_penalty: options.LengthPenalty = None,
    word_penalty: options.WordPenalty = None,
    coverage_penalty: options.CoveragePenalty = None,
    min_length_ratio: options.MinLengthRatio = None,
    max_length_ratio: options.MaxLengthRatio = None,
    ensemble: options.Ensemble = None,
    sample: options.Sample = None,
    temperature: options.Temperature = None,
    top_k: options.TopK = None,
    seed: options.Seed = None,
    max_source_length: options.MaxSourceLength = None,
    prefix_file: options.PrefixFile = None,
    phrase_file: options.PhraseFile = None,
    candidates: options.Candidates = None,
    allow_unk: options.AllowUnk = None,
    replace_unk: options.ReplaceUnk = None,
    lexicon: options.Lexicon = None,
    batch_size: options.BatchSize = None,
    max_memory: options.MaxMemory = None,
    which: WhichOption = "best",
    device: DeviceOption = None,
    precision: PrecisionOption = None,
    threads: ThreadsOption = None,
    config: ConfigOption = None,
) -> None:
    """Translate text: one line out for each line in, always, each as soon as it can be.

    A blank line stays blank; bytes that are not UTF-8 become U+FFFD.

    Examples:

      nmtalign translate -m model/ < in.en > out.fr

      nmtalign translate in.en.gz -o out.fr --resume --replace-unk

      nmtalign translate --n-best 5 --format json < in.en | jq .n_best

      nmtalign translate --alignments alignments.h5 < in.en > out.fr
    """
    _run(locals())


def _run(given_options: Mapping[str, Any]) -> None:
    """Translates as the options, by their names, say."""
    option = SimpleNamespace(**given_options)
    workspace = load_workspace(option.config)
    flags = _flags(given_options)
    settings = workspace.resolve(TranslateConfig, "translate", flags)
    _check(option, settings)
    choose_wait_policy()
    bound_caches()
    folders = tuple(option.model or (workspace.model,))
    check_ahead(folders, option.which)
    with Signals() as signals:
        from nmtalign.cli.translate_alignments import Alignments
        from nmtalign.cli.translate_job import Job
        from nmtalign.translating.inputs import Inputs

        alignments = None
        if option.alignments is not None:
            alignments = Alignments(
                option.alignments, option.alignments_of == "n-best", option.weights, resume=option.resume
            )
        job = Job(
            Inputs(tuple(option.inputs or (STDIN,)), settings.input_format, option.prefix_file, option.phrase_file),
            folders,
            option.which,
            None if option.output == STDIN else option.output,
            option.resume,
            alignments,
            settings,
            option.quiet,
        )
        with naming(*workspace.layers("translate", flags)):
            job.run(signals)


def _flags(options: Mapping[str, Any]) -> dict[str, Any]:
    """The settings among the options."""
    return {name: value for name, value in options.items() if name in field_names(TranslateConfig)}


def _check(option: SimpleNamespace, settings: TranslateConfig) -> None:
    """Raises UsageError for options that do not go together."""
    files = [*(option.inputs or (STDIN,)), option.prefix_file, option.phrase_file]
    if files.count(STDIN) > 1:
        raise UsageError("`-`, standard input, is given more than once; give all but one as files")
    if option.resume and option.output in (None, STDIN):
        raise UsageError("--resume goes on with a file: give -o FILE too")
    if settings.sample and option.phrase_file:
        raise UsageError(
            "--sample draws freely and cannot be made to hold phrases: leave out --sample or --phrase-file"
        )
    _check_alignments(option, files)
    if settings.input_format == "json" and (option.prefix_file or option.phrase_file):
        raise UsageError('--prefix-file and --phrase-file are for text; JSON has the keys "prefix" and "phrases"')


def _check_alignments(option: SimpleNamespace, files: Sequence[Path | None]) -> None:
    """Raises UsageError where --alignments would write over another file, or is missing."""
    if option.alignments is None:
        if option.alignments_of != "best":
            raise UsageError("--alignments-of says what goes into a file of --alignments FILE.h5: give that, too")
        return
    if option.alignments == option.output:
        raise UsageError(f"{option.output}: is given for -o and for --alignments; give two files")
    if option.alignments in files:
        raise UsageError(f"{option.alignments}: is an input; give another file with --alignments")
