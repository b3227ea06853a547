"""A short training on a corpus of the tests."""

import torch

from nmtalign.core.model import make_batch
from nmtalign.model_directory import load_model, load_tensors
from nmtalign.settings.training_settings import ModelConfig, TrainingConfig
from nmtalign.training.distributed import World
from nmtalign.training.events import Progressed
from nmtalign.training.trainer import Trainer
from nmtalign.training.updates import TrainingSetup

_RULE = {"optimizer": "adamw", "learning_rate": 5e-3, "epsilon": 1e-8, "loss_normalization": "tokens"}
_PACE = {"max_updates": 12, "validate_every": "6", "checkpoint_every": "5", "log_every": 3, "bleu_sentences": 5}
CONFIG = TrainingConfig(**_RULE, **_PACE, batch_size=40, shuffle="epoch", precision="fp32", device="cpu")


def sizes(corpus, **changes):
    sides = ("source_vocabulary", "target_vocabulary")
    words = {f"{side}_size": len(getattr(corpus, side)) for side in sides}
    small = {"embedding": 16, "hidden": 32, "attention_hidden": 32, "maxout": 16, "output_rank": 0}
    return ModelConfig(**{**words, **small, "initialisation": "xavier", **changes})


def make_trainer(corpus, folder, model_config, config, listen, restart=False, world=None):
    setup = TrainingSetup(corpus, folder, model_config, config, world or World(torch.device("cpu")))
    return Trainer(setup, "tiny", listen, restart)


def train(corpus, folder, config=CONFIG, stop_at=None, restart=False, model_config=None, **model):
    """Runs a training of a model with these sizes, or other settings of a model, and returns its recorded events.

    `stop_at` asks it to stop as a signal would, at the progress report of that update.
    """
    events = []

    def listen(event):
        if event.recorded:
            events.append(event)
        if stop_at and isinstance(event, Progressed) and event.update >= stop_at:
            trainer.stop("interrupted")

    trainer = make_trainer(corpus, folder, model_config or sizes(corpus, **model), config, listen, restart)
    trainer.run()
    return events


def share_on_diagonal(folder, dev):
    """The share of target words of reversed pairs that read, most of all, the source word that they translate."""
    model, right, words = load_model(folder, device="cpu").model, 0, 0
    for index in range(len(dev)):
        forced, length = model.force(*make_batch([dev.pair(index)]).inputs()), int(dev.source.lengths[index])
        reads = forced.weights[0, :length].argmax(-1).tolist()
        right += sum(read == length - 1 - step for step, read in enumerate(reads))
        words += length
    return right / words


def weights(folder, name="last"):
    return load_tensors(folder / f"{name}.safetensors")[0]
