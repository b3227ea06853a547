"""What the tests of the server share: a model for each direction."""

import json
from pathlib import Path

import pytest
import torch
from helpers.servers import serving

import nmtalign

SOURCE = ["the", "fox", "sees", "a", "red", "boat", "."]
TARGET = ["le", "renard", "voit", "un", "bateau", "rouge", "."]


def disturb(model) -> None:
    for parameter in model.parameters():
        parameter.mul_(2).add_(torch.randn_like(parameter) * 0.3)
    model.readout.output_bias[0] -= 3  # words rather than none


@pytest.fixture(scope="session")
def english(tmp_path_factory, random_model_directory) -> Path:
    """A random model, English to French."""
    return random_model_directory(tmp_path_factory.mktemp("english"), SOURCE, TARGET, disturb)


@pytest.fixture(scope="session")
def french(tmp_path_factory, random_model_directory) -> Path:
    """A random model, French to English."""
    folder = random_model_directory(tmp_path_factory.mktemp("french"), TARGET, SOURCE, disturb, seed=4)
    settings = json.loads((folder / "config.json").read_text())
    settings |= {"source_language": "fr", "target_language": "en"}
    (folder / "config.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture
def make_model(tmp_path, random_model_directory):
    """Makes a random model with other words, languages or settings than `english`."""

    def make(languages=("en", "fr"), source=SOURCE, target=TARGET, seed=5, **settings) -> Path:
        folder = random_model_directory(tmp_path / "-".join(languages), source, target, disturb, seed=seed, **settings)
        config = json.loads((folder / "config.json").read_text())
        config |= dict(zip(("source_language", "target_language"), languages, strict=True))
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    return make


@pytest.fixture(scope="session")
def blind(tmp_path_factory, random_model_directory) -> Path:
    """A random model without attention."""
    return random_model_directory(tmp_path_factory.mktemp("blind"), SOURCE, TARGET, disturb, "none")


@pytest.fixture(scope="session")
def aligner(tmp_path_factory) -> Path:
    """A word aligner of `nmtalign link`, English to French."""
    folder = tmp_path_factory.mktemp("linked")
    for side, name in enumerate(("train.en", "train.fr")):
        pairs = [("the fox sees a boat .", "le renard voit un bateau ."), ("a red fox", "un renard rouge")] * 5
        (folder / name).write_text("".join(f"{pair[side]}\n" for pair in pairs))
    nmtalign.link(folder / "train.en", folder / "train.fr", folder / "aligner", threads=1)
    return folder / "aligner"


@pytest.fixture(scope="module")
def client(english, french):
    """A client of a server with both models."""
    with serving(english, french) as found:
        yield found
