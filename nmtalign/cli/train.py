"""`nmtalign train`: from a prepared corpus to a model directory."""

import dataclasses
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from nmtalign.checks import naming
from nmtalign.cli.common import ConfigOption, QuietOption, choose_wait_policy, say
from nmtalign.cli.ranks import joined
from nmtalign.cli.stopping import REASONS, handle_signals
from nmtalign.config import ModelConfig, TrainingConfig
from nmtalign.workspace import Workspace, load_workspace

if TYPE_CHECKING:
    from nmtalign.training.distributed import World
    from nmtalign.training.events import Finished
    from nmtalign.training.loop import Trainer

MODEL, OPTIMISER, BATCHES, BUDGET, MACHINE = "Model", "Optimiser", "Batches", "How long", "Machine"
READING, ALIGNMENT = "Attention", "Alignment"
Presets = Literal["rnnsearch-50", "rnnsearch-30", "rnnencdec-50", "rnnencdec-30", "small", "tiny"]
Numbers = int | None


def _option(flag: str, help: str, panel: str, metavar: str | None = None) -> Any:
    return typer.Option(flag, help=help, rich_help_panel=panel, metavar=metavar)


Data = Annotated[Path | None, typer.Argument(help="Folder of `nmtalign prep`.", show_default=False)]
Output = Annotated[Path | None, typer.Option("-o", "--output", help="Model directory, made or gone on with.")]
_PRESETS = "Settings to start from: rnnsearch-50, rnnsearch-30, rnnencdec-50, rnnencdec-30, small, tiny \\[small]."
Preset = Annotated[Presets | None, typer.Option(metavar="NAME", help=_PRESETS)]
Cell = Annotated[Literal["paper", "cudnn"] | None, _option("--cell", "Gated unit.", MODEL)]
Order = Annotated[
    Literal["look-generate-update", "look-update-generate"] | None,
    _option("--order", "look-generate-update (the paper's code) or look-update-generate (its text).", MODEL, "ORDER"),
]
Attention = Annotated[
    Literal["additive", "dot", "general", "none"] | None,
    _option("--attention", "additive, dot, general; none = a fixed context.", READING, "SCORE"),
]
Bidirectional = Annotated[bool | None, _option("--bidirectional/--unidirectional", "Encoder directions.", MODEL)]
ReverseSource = Annotated[
    bool | None, _option("--reverse-source", "Its one direction reads from the last word.", MODEL)
]
ReadoutPreviousWord = Annotated[
    bool | None, _option("--readout-word/--no-readout-word", "Readout sees the previous word (V_o).", MODEL)
]
Hidden = Annotated[Numbers, _option("--hidden", "Hidden units n.", MODEL)]
Embedding = Annotated[Numbers, _option("--embedding", "Word embedding m.", MODEL)]
AttentionTemperature = Annotated[float | None, _option("--attention-temperature", "Below 1, sharper weights.", READING)]
Coverage = Annotated[
    Literal["none", "linguistic"] | None, _option("--coverage", "Looks see what was read before.", READING)
]
AttentionHidden = Annotated[Numbers, _option("--attention-hidden", "Alignment model units n'.", READING)]
Maxout = Annotated[Numbers, _option("--maxout", "Maxout units l.", MODEL)]
OutputRank = Annotated[Numbers, _option("--output-rank", "Width before the softmax; 0 = direct.", MODEL)]
Dropout = Annotated[float | None, _option("--dropout", "Share of activations dropped.", MODEL)]
Optimizer = Annotated[
    Literal["adadelta", "adam", "adamw"] | None, _option("--optimizer", "adadelta is the paper's.", OPTIMISER)
]
LearningRate = Annotated[float | None, _option("--learning-rate", "Highest rate.", OPTIMISER)]
Schedule = Annotated[
    Literal["constant", "linear", "inverse-sqrt"] | None,
    _option("--schedule", "constant, linear (falls to 0 over the budget) or inverse-sqrt.", OPTIMISER, "COURSE"),
]
Warmup = Annotated[Numbers, _option("--warmup", "Updates of linear rise.", OPTIMISER)]
WeightDecay = Annotated[float | None, _option("--weight-decay", "Of AdamW.", OPTIMISER)]
ClipNorm = Annotated[float | None, _option("--clip-norm", "Largest gradient norm; 0 = any.", OPTIMISER)]
LossNormalization = Annotated[
    Literal["sentences", "tokens", "sum"] | None,
    _option("--loss-normalization", "What the summed loss is divided by.", OPTIMISER),
]
LabelSmoothing = Annotated[float | None, _option("--label-smoothing", "Share spread evenly.", OPTIMISER)]
BatchSize = Annotated[Numbers, _option("--batch-size", "Sentences or tokens a minibatch.", BATCHES)]
BatchUnit = Annotated[
    Literal["sentences", "tokens"] | None, _option("--batch-unit", "What --batch-size counts.", BATCHES)
]
Accumulate = Annotated[Numbers, _option("--accumulate", "Minibatches summed to one update.", BATCHES)]
Window = Annotated[Numbers, _option("--window", "Minibatches sorted by length together.", BATCHES)]
MaxLength = Annotated[Numbers, _option("--max-length", "Longest side in tokens; 0 = any.", BATCHES)]
MaxUpdates = Annotated[Numbers, _option("--max-updates", "Updates; 0 = no limit.", BUDGET)]
Epochs = Annotated[float | None, _option("--epochs", "Epochs; 0 = no limit.", BUDGET)]
MaxTime = Annotated[str | None, _option("--max-time", "Such as 60s, 15m, 2h.", BUDGET, "TIME")]
Patience = Annotated[Numbers, _option("--patience", "Validations without progress; 0 = any.", BUDGET)]
Metric = Annotated[Literal["loss", "bleu"] | None, _option("--metric", "What is best on dev.", BUDGET)]
ValidateEvery = Annotated[
    str | None, _option("--validate-every", "Updates, a time, or `epoch`.", BUDGET, "N|TIME|epoch")
]
CheckpointEvery = Annotated[
    str | None, _option("--checkpoint-every", "Updates, a time, or `epoch`.", BUDGET, "N|TIME|epoch")
]
InitFrom = Annotated[Path | None, _option("--init-from", "Model directory to start from.", MODEL, "MODEL")]
GuidedAlignment = Annotated[
    Path | None,
    _option("--guided-alignment", "Links to learn, as 0-0 2-1, for each line of the text.", ALIGNMENT, "LINKS"),
]
GuidedWeight = Annotated[
    float | None, _option("--guided-weight", "Of their loss, beside that of the words \\[0.5].", ALIGNMENT)
]
GuidedLoss = Annotated[
    Literal["cross-entropy", "sum"] | None,
    _option("--guided-loss", "cross-entropy, or sum: all weight on the linked words together.", ALIGNMENT, "LOSS"),
]
GuidedReading = Annotated[
    Literal["current", "shifted"] | None,
    _option("--guided-reading", "shifted = asked of the step that reads the word.", ALIGNMENT),
]
Agreement = Annotated[
    bool | None,
    _option("--agreement/--no-agreement", "Train the other direction too, so that both agree: backward/.", ALIGNMENT),
]
AgreementWeight = Annotated[float | None, _option("--agreement-weight", "Of their disagreement \\[1].", ALIGNMENT)]
Device = Annotated[Literal["auto", "cpu", "cuda"] | None, _option("--device", "Where to compute.", MACHINE)]
Precision = Annotated[
    Literal["auto", "fp32", "bf16"] | None,
    _option("--precision", "auto = bf16 where it is native.", MACHINE),
]
Threads = Annotated[Numbers, _option("--threads", "CPU threads; 0 = PyTorch's choice.", MACHINE)]
Seed = Annotated[Numbers, _option("--seed", "Fixes weights, order and dropout.", MACHINE)]
Tensorboard = Annotated[
    Path | None, _option("--tensorboard", "Also write TensorBoard events to this folder.", MACHINE, "DIR")
]
Restart = Annotated[bool, typer.Option("--restart", help="Train anew over what the directory holds.")]


def train(
    data: Data = None,
    output: Output = None,
    preset: Preset = None,
    cell: Cell = None,
    order: Order = None,
    attention: Attention = None,
    attention_temperature: AttentionTemperature = None,
    coverage: Coverage = None,
    bidirectional: Bidirectional = None,
    reverse_source: ReverseSource = None,
    readout_previous_word: ReadoutPreviousWord = None,
    hidden: Hidden = None,
    embedding: Embedding = None,
    attention_hidden: AttentionHidden = None,
    maxout: Maxout = None,
    output_rank: OutputRank = None,
    dropout: Dropout = None,
    optimizer: Optimizer = None,
    learning_rate: LearningRate = None,
    schedule: Schedule = None,
    warmup: Warmup = None,
    weight_decay: WeightDecay = None,
    clip_norm: ClipNorm = None,
    loss_normalization: LossNormalization = None,
    label_smoothing: LabelSmoothing = None,
    batch_size: BatchSize = None,
    batch_unit: BatchUnit = None,
    accumulate: Accumulate = None,
    window: Window = None,
    max_length: MaxLength = None,
    max_updates: MaxUpdates = None,
    epochs: Epochs = None,
    max_time: MaxTime = None,
    patience: Patience = None,
    metric: Metric = None,
    validate_every: ValidateEvery = None,
    checkpoint_every: CheckpointEvery = None,
    init_from: InitFrom = None,
    guided_alignment: GuidedAlignment = None,
    guided_weight: GuidedWeight = None,
    guided_loss: GuidedLoss = None,
    guided_reading: GuidedReading = None,
    agreement: Agreement = None,
    agreement_weight: AgreementWeight = None,
    device: Device = None,
    precision: Precision = None,
    threads: Threads = None,
    seed: Seed = None,
    tensorboard: Tensorboard = None,
    restart: Restart = False,
    config: ConfigOption = None,
    quiet: QuietOption = False,
) -> None:
    _run(locals())


train.__doc__ = """Train a model; the same command again goes on where it was cut off.

Settings come from the preset, then from the \\[train] section of
nmtalign.toml, then from these options. Every event is kept in train.jsonl in
the model directory.

Under torchrun several processes train one model, with the updates that one
would make: --batch-size counts the batch of all. Each has a GPU, or --threads
threads (torchrun's choice is one). The first alone writes and speaks. If one
dies, all end with a line that names it, and the same command, with any number
of processes, goes on. torchrun adds a report of its own to that line, which
TORCH_LOGS=-distributed makes a little shorter.

Examples:

  nmtalign train

  nmtalign train data/ -o model/ --preset small --max-time 15m

  nmtalign train data/ -o paper/ --preset rnnsearch-50 --device cuda

  torchrun --nproc-per-node 2 -m nmtalign train data/ -o model/

  nmtalign train data/ -o guided/ --init-from model/ --guided-alignment links

  nmtalign train data/ -o model/ --agreement
"""


def _run(given: dict[str, Any]) -> None:
    """The command, with its arguments by name."""
    flags = {name: value for name, value in given.items() if name not in _NOT_SETTINGS}
    workspace = load_workspace(given["config"])
    name, model_config, training_config = workspace.resolve_training(given["preset"], flags)
    choose_wait_policy()
    with joined(training_config.device) as world, naming(*workspace.training_layers(name, flags)):
        finished = _train(world, workspace, name, model_config, training_config, given)
    if not finished.complete:
        raise typer.Exit(next(128 + number for number, reason in REASONS.items() if reason == finished.reason))


def _train(
    world: "World",
    workspace: Workspace,
    preset: str,
    model_config: ModelConfig,
    training_config: TrainingConfig,
    given: dict[str, Any],
) -> "Finished":
    from nmtalign.cli.display import make_listener
    from nmtalign.data.corpus import Corpus
    from nmtalign.training.loop import Trainer

    corpus = Corpus.open(given["data"] or workspace.data)
    model_config = dataclasses.replace(
        model_config,
        source_vocabulary_size=len(corpus.source_vocabulary),
        target_vocabulary_size=len(corpus.target_vocabulary),
    )
    folder, quiet = given["output"] or workspace.model, given["quiet"] or not world.first
    with make_listener(folder, quiet, given["tensorboard"] if world.first else None) as listen:
        trainer = Trainer(corpus, folder, preset, model_config, training_config, listen, given["restart"], world)
        _stop_on_signals(trainer)
        finished = trainer.run()
    if not quiet:
        _say_what_next(folder, finished, already=trainer.resumed and trainer.updates_done == 0)
    return finished


_NOT_SETTINGS = {"data", "output", "preset", "tensorboard", "restart", "config", "quiet"}


def _stop_on_signals(trainer: "Trainer") -> None:
    """Ctrl-C, SIGTERM and SIGHUP save and end; a second one leaves at once, even while a checkpoint is written."""
    began: float | None = None

    def handle(number: int, _: object) -> None:
        nonlocal began
        now = time.monotonic()
        if began is None:
            began = now
            trainer.stop(REASONS[number])
        elif "LOCAL_RANK" in os.environ and now - began < 5:
            pass  # torchrun passes on the Ctrl-C that the terminal sends to all processes: still the first one
        elif number == signal.SIGINT:
            raise KeyboardInterrupt
        else:
            raise SystemExit(128 + number)

    handle_signals(handle)


def _say_what_next(folder: Path, finished: "Finished", already: bool) -> None:
    reason = finished.reason
    if not finished.complete:
        say(f"{folder}: {reason} at update {finished.update}; the same command goes on from there")
    elif already:
        say(f"{folder}: already done ({reason}); to go on give a larger budget, to train anew --restart")
    else:
        say(f"{folder}: done ({reason}); now: nmtalign translate -m {folder} < in.txt > out.txt")
