"""Settings with which other toolkits train for a number of updates, report their dev loss and translate a test set.

All use Adam with the same rate and no schedule, gradients clipped to a norm of 1, losses per token and no dropout, and
never output `<unk>`.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.recipes import Job

CLIP_NORM = 1.0
LONGEST = 100  # words of a translation
BATCH = 128  # sentences of a translation; 32 are slower in both


@dataclass(frozen=True)
class Training:
    """The settings of all toolkits."""

    updates: int
    learning_rate: float
    beam: int
    seed: int
    report_every: int = 100  # updates


@dataclass(frozen=True)
class QualityRecipe:
    """The settings of a toolkit, and patterns of its log: dev perplexity per token (with `</s>`), parameters."""

    settle: Callable[[dict[str, Any], Job, Training], None]  # changes its settings for `bench train`
    translate: Callable[
        [Path, Job, Training, Path], list[str]
    ]  # arguments: the environment's bin folder, job, training, text
    perplexity: str
    parameters: str | None  # None = it does not print their number


def _settle_joeynmt(config: dict[str, Any], job: Job, training: Training) -> None:
    settings = config["training"]
    settings |= {
        "scheduling": "exponential",
        "decrease_factor": 1.0,
    }  # a schedule is required; this one keeps the rate constant
    settings |= {"updates": training.updates, "validation_freq": training.updates}
    # It must report before it validates, and once more afterwards.
    most = min(training.report_every, training.updates - 1)
    settings |= {"logging_freq": next((n for n in range(most, 1, -1) if training.updates % n == 0), 1)}
    settings |= {"learning_rate": training.learning_rate, "clip_grad_norm": CLIP_NORM, "normalization": "tokens"}
    settings |= {"random_seed": training.seed, "shuffle": True, "early_stopping_metric": "ppl", "patience": 1000}
    config["testing"] |= {"generate_unk": False, "max_output_length": LONGEST}


def _settle_opennmt(config: dict[str, Any], job: Job, training: Training) -> None:
    config["data"]["valid"] = {"path_src": job.file("dev", "src"), "path_tgt": job.file("dev", "tgt")}
    config |= {"train_steps": training.updates, "valid_steps": training.updates}
    config |= {"save_checkpoint_steps": training.updates, "keep_checkpoint": 1}
    config["report_every"] = training.report_every
    config |= {"learning_rate": training.learning_rate, "max_grad_norm": CLIP_NORM, "normalization": "tokens"}
    config |= {"seed": training.seed, "bucket_size": 262144, "valid_batch_size": job.sentences}


def _settle_marian(config: dict[str, Any], job: Job, training: Training) -> None:
    every = f"{training.updates}u"
    config |= {"valid-sets": [job.file("dev", "src"), job.file("dev", "tgt")], "valid-metrics": ["perplexity"]}
    config |= {"after": every, "valid-freq": every, "save-freq": every, "disp-freq": f"{training.report_every}u"}
    config |= {"learn-rate": training.learning_rate, "clip-norm": CLIP_NORM, "cost-type": "ce-mean-words"}
    config |= {"seed": training.seed, "maxi-batch": 100, "valid-mini-batch": job.sentences}


def _joeynmt(bin_folder: Path, job: Job, training: Training, text: Path) -> list[str]:
    """JoeyNMT reads stdin."""
    config = json.loads((job.folder / "config.yaml").read_text(encoding="utf-8"))
    config["testing"] |= {"beam_size": training.beam, "batch_size": BATCH, "batch_type": "sentence", "beam_alpha": 1.0}
    path = job.folder / "translate.yaml"
    path.write_text(json.dumps(config), encoding="utf-8")
    return [str(bin_folder / "python"), "-m", "joeynmt", "translate", str(path)]


def _opennmt(bin_folder: Path, job: Job, training: Training, text: Path) -> list[str]:
    """OpenNMT-py cannot write to stdout."""
    model = job.folder / f"model_step_{training.updates}.pt"
    return [
        *(str(bin_folder / "onmt_translate"), "-model", str(model), "-src", str(text), "-gpu", "-1"),
        *("-output", str(job.output), "-beam_size", str(training.beam), "-length_penalty", "avg"),
        *("-batch_size", str(BATCH), "-batch_type", "sents", "-max_length", str(LONGEST), "-ban_unk_token"),
    ]


def _marian(bin_folder: Path, job: Job, training: Training, text: Path) -> list[str]:
    vocabularies = [str(job.folder / f"vocabulary.{side}.yml") for side in ("src", "tgt")]
    return [
        *(str(bin_folder / "pymarian"), "decode", "-m", str(job.folder / "model.npz"), "--vocabs", *vocabularies),
        *("-i", str(text), "--beam-size", str(training.beam), "--normalize", "1", "--cpu-threads", str(job.threads)),
        *("--mini-batch", str(BATCH), "--maxi-batch", "100", "--maxi-batch-sort", "src", "--quiet"),
        *("--max-length", str(LONGEST)),
    ]


QUALITY_RECIPES = {
    "joeynmt": QualityRecipe(
        _settle_joeynmt, _joeynmt, r"Evaluation result \(greedy\).*ppl:\s*([\d.]+)", r"Total params: (\d+)"
    ),
    "opennmt": QualityRecipe(
        _settle_opennmt, _opennmt, r"Validation perplexity: ([\d.]+)", r"number of parameters: (\d+)"
    ),
    "marian": QualityRecipe(_settle_marian, _marian, r"perplexity : ([\d.]+)", None),
}
