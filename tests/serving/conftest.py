"""What the tests of the server share: a model for each direction."""

import pytest
from helpers.parallel_texts import write_pairs
from helpers.random_models import ENGLISH, FRENCH
from helpers.servers import serving

import nmtalign


@pytest.fixture(scope="session")
def english(tmp_path_factory, random_model_directory):
    """A random model, English to French."""
    return random_model_directory(tmp_path_factory.mktemp("english"))


@pytest.fixture(scope="session")
def french(tmp_path_factory, random_model_directory):
    """A random model, French to English."""
    folder = tmp_path_factory.mktemp("french")
    return random_model_directory(folder, FRENCH, ENGLISH, seed=4, languages=("fr", "en"))


@pytest.fixture(scope="session")
def aligner(tmp_path_factory):
    """A word aligner of `nmtalign link`, English to French."""
    folder = tmp_path_factory.mktemp("linked")
    pairs = [("the fox sees a boat .", "le renard voit un bateau ."), ("a red fox", "un renard rouge")] * 5
    nmtalign.link(*write_pairs(folder, "train", pairs), folder / "aligner", threads=1)
    return folder / "aligner"


@pytest.fixture(scope="module")
def client(english, french):
    """A client of a server with both models."""
    with serving(english, french) as found:
        yield found
