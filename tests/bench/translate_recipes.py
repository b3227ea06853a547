"""Settings with which other toolkits translate a text with the model that they have saved after one update.

The weights are almost random, so a translation could end anywhere. Each translation must therefore be as long as the
source.
"""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bench.recipes import Job

BATCH = 32  # sentences; in Marian per thread

Command = Callable[[Path, Job, Path, int], list[str]]  # arguments: the environment's bin folder, job, text, beam size


# JoeyNMT's search has a minimum length, but its command does not pass it on.
_JOEYNMT = """
import sys
import joeynmt.prediction as prediction
search, least = prediction.search, int(sys.argv.pop(1))
prediction.search = lambda **options: search(**{**options, "min_output_length": least})
from joeynmt.__main__ import main
main()
"""


def _joeynmt(bin_folder: Path, job: Job, text: Path, beam: int) -> list[str]:
    """JoeyNMT reads stdin; it uses the configuration of its training and its best model."""
    config = json.loads((job.folder / "config.yaml").read_text(encoding="utf-8"))
    config["testing"] |= {"beam_size": beam, "batch_size": BATCH, "batch_type": "sentence", "beam_alpha": 1.0}
    path = job.folder / f"translate-{beam}.yaml"
    path.write_text(json.dumps(config), encoding="utf-8")
    return [str(bin_folder / "python"), "-c", _JOEYNMT, str(job.texts.longest), "translate", str(path)]


def _opennmt(bin_folder: Path, job: Job, text: Path, beam: int) -> list[str]:
    """OpenNMT-py cannot write to stdout."""
    length = str(job.texts.longest)
    return [
        *(str(bin_folder / "onmt_translate"), "-model", str(job.folder / "model_step_1.pt"), "-src", str(text)),
        *("-output", str(job.output), "-beam_size", str(beam), "-gpu", "-1"),
        *("-batch_size", str(BATCH), "-batch_type", "sents", "-min_length", length, "-max_length", length),
    ]


def _marian(bin_folder: Path, job: Job, text: Path, beam: int) -> list[str]:
    """Marian has no minimum length, but a maximum length relative to the source; see `keep_open`."""
    vocabularies = [str(job.folder / f"vocabulary.{side}.yml") for side in ("src", "tgt")]
    return [
        *(str(bin_folder / "pymarian"), "decode", "-m", str(job.folder / "model.npz"), "--vocabs", *vocabularies),
        *("-i", str(text), "--beam-size", str(beam), "--cpu-threads", str(job.threads), "--quiet"),
        *("--mini-batch", str(BATCH), "--maxi-batch", "100", "--maxi-batch-sort", "src"),
        *("--max-length-factor", "1"),
    ]


def keep_open(job: Job) -> None:
    """Changes the output bias of a model that Marian has saved, so that it never chooses `</s>` (id 0)."""
    path = job.folder / "model.npz"
    if path.exists():
        with np.load(path) as saved:
            weights = dict(saved)
        weights["decoder_ff_logit_l2_b"][0, 0] = -1e4
        np.savez(path, **weights)


COMMANDS: dict[str, Command] = {"joeynmt": _joeynmt, "opennmt": _opennmt, "marian": _marian}
# The ways in which a toolkit translates, if there are several: additional options by what a table adds to its name.
WAYS: dict[str, dict[str, tuple[str, ...]]] = {"marian": {"": (), ", int8": ("--gemm-type", "packed8")}}
