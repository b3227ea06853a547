"""Trainings by several processes: started by torchrun, each process runs all of `cases`, one after the other.

`torchrun trainings_together.py CORPUS FOLDER` writes FOLDER/CASE/ for each case; a test runs the same cases in one
process.
"""

import hashlib
import sys
from dataclasses import replace
from pathlib import Path

from helpers.trainings import make_trainer, sizes

from nmtalign.data.corpus import Corpus
from nmtalign.errors import TrainingError
from nmtalign.settings.training_settings import TrainingConfig
from nmtalign.training.distributed import World, open_world

_RULE = {"optimizer": "adadelta", "loss_normalization": "tokens", "batch_size": 20, "window": 2, "shuffle": "epoch"}
_PACE = {"epochs": 2.0, "validate_every": "epoch", "checkpoint_every": "100", "log_every": 2, "bleu_sentences": 7}
CONFIG = TrainingConfig(**_RULE, **_PACE, precision="fp32", device="cpu")
FALLING = replace(CONFIG, schedule="linear", warmup=3)
# 61 training pairs: 20, 20, 20, 1 of them a batch, so that the second of two processes has nothing of the last.
CASES = {
    "tokens": CONFIG,
    "batches of tokens": replace(CONFIG, loss_normalization="sentences", batch_size=50, batch_unit="tokens"),
    "adamw, smoothed": replace(FALLING, optimizer="adamw", learning_rate=1e-3, epsilon=1e-8, label_smoothing=0.1),
    "accumulated, a sentence a batch": replace(CONFIG, batch_size=1, accumulate=4, epochs=0.4),
    "best by bleu": replace(CONFIG, metric="bleu", patience=1, epochs=4.0),
}
HALF, WHOLE = replace(CONFIG, epochs=0.0, max_updates=3), replace(CONFIG, epochs=0.0, max_updates=7)
DROPOUT = 0.2


def cases(corpus: Corpus) -> dict[str, TrainingConfig]:
    """All cases by name; the links of those that are guided lie beside the corpus."""
    links = str(corpus.folder / "links")
    return {**CASES, "guided": replace(CONFIG, guided_alignment=links, accumulate=2)}


SMALL = {"embedding": 8, "hidden": 12, "attention_hidden": 10, "maxout": 6}


def train(corpus: Corpus, folder: Path, config: TrainingConfig, world: World | None = None, **model) -> list:
    """One training; the events of the first process."""
    events: list = []
    trainer = make_trainer(corpus, folder, sizes(corpus, **SMALL, **model), config, events.append, world=world)
    trainer.run()
    weights = b"".join(tensor.cpu().numpy().tobytes() for tensor in trainer.setup.model.state_dict().values())
    if len({*trainer.world.all_gather(hashlib.sha256(weights).hexdigest())}) > 1:
        raise SystemExit(f"{folder.name}: the processes have drifted apart")
    return events


def interrupt(corpus: Corpus, folder: Path, world: World) -> None:
    """A training whose last process is asked to stop while all validate."""
    trainer = make_trainer(corpus, folder, sizes(corpus, **SMALL), CONFIG, lambda event: None, world=world)
    if world.rank == world.size - 1:
        validating = trainer.setup.model.eval

        def stop():
            trainer.stop("interrupted")
            return validating()

        trainer.setup.model.eval = stop
    (folder.parent / f"{folder.name}.{world.rank}").write_text(str(trainer.run()))


def diverge(corpus: Corpus, folder: Path, world: World | None = None) -> str:
    """Returns the error of a training whose weights are out of bounds."""
    try:
        train(corpus, folder, replace(CONFIG, optimizer="adam", learning_rate=1e38, clip_norm=0.0, epochs=9.0), world)
    except TrainingError as error:
        return str(error)
    return ""


def main(corpus: Corpus, folder: Path) -> None:
    """All that several processes are to leave."""
    world = open_world("cpu")
    with world.reporting_once():
        for name, config in cases(corpus).items():
            train(corpus, folder / name, config, world)
        train(corpus, folder / "no attention", CONFIG, world, attention="none", bidirectional=False, output_rank=5)
        train(corpus, folder / "begun by two", HALF, world)
        train(corpus, folder / "begun by one", WHOLE, world)
        train(corpus, folder / "damaged", HALF, world)
        for config in (HALF, WHOLE):
            train(corpus, folder / "interrupted", config, world, dropout=DROPOUT)
        train(corpus, folder / "uninterrupted", WHOLE, world, dropout=DROPOUT)
        train(corpus, folder / "timed", replace(CONFIG, epochs=0.0, max_time="1s", schedule="linear"), world)
        interrupt(corpus, folder / "stopped", world)
        train(corpus, folder / "stopped", CONFIG, world)
        (folder / f"diverged.{world.rank}").write_text(diverge(corpus, folder / "diverged", world))
        world.close()


if __name__ == "__main__":
    main(Corpus.open(Path(sys.argv[1])), Path(sys.argv[2]))
