"""What tests share: a small reversing corpus, random models, and a runner of the real command line."""

import contextlib

import h5py
import hypothesis
import numpy as np
import pytest
import torch
from helpers.command_line import run_nmtalign, skip_flushing
from helpers.random_models import ENGLISH, FRENCH, disturb, write_model

from nmtalign.cli import common
from nmtalign.core import numerics
from nmtalign.data.corpus import Corpus
from nmtalign.errors import ResourceError
from nmtalign.hdf5 import seal
from nmtalign.settings.command_settings import PrepConfig
from nmtalign.settings.training_settings import ModelConfig, TrainingConfig
from nmtalign.text.tokenizer import Tokenizers

torch.set_num_threads(1)  # many small models: a second thread would only wait for the first
skip_flushing()
hypothesis.settings.register_profile("untimed", hypothesis.settings(), deadline=None)  # time decides no test
hypothesis.settings.load_profile("untimed")

WORDS = [f"w{index}" for index in range(12)]


@pytest.fixture(autouse=True, scope="session")
def no_watch():
    """Commands in this process start no thread that looks at the load: it would call what a test puts in its place."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(common, "_start_watch", lambda: None)
        yield


@pytest.fixture(autouse=True)
def one_thread():
    """Trainings set the number of threads; the last bits of a product depend on it."""
    yield
    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)


class Rounding:
    """How far apart numbers may be that are computed with sums in different orders."""

    SUMS = 8  # chained in a step: keys, query, energy, context, gates, candidate, readout, softmax

    def of(self, magnitude, count, dtype=torch.float32):
        """The error of `count` roundings, each at most the unit roundoff times the magnitude of the rounded number.

        The magnitude of a sum is the sum of its terms' absolute values. A sum has one rounding per term in any order.
        """
        return count * torch.finfo(dtype).eps / 2 * magnitude

    def of_steps(self, model, steps):
        """The error of a log-probability or a weight after a number of steps (source and target together).

        The inputs of a product are between -1 and 1, or word vectors: a sum is no larger than the largest row of a
        weight, in absolute values, times the largest number of a word vector (or 1). An energy that is the product of
        a state with a key is the sum of n such numbers. Roundings inside a sum mostly cancel; those of successive
        sums add up.
        """
        named = model.named_parameters()
        weights = [weight.detach().double().abs() for name, weight in named if not name.endswith("bias")]
        words = [module.weight.detach().abs().max() for module in (model.source_embedding, model.target_embedding)]
        magnitude = max(float(weight.sum(-1).max()) for weight in weights) * max(1.0, *map(float, words))
        if model.config.attention in ("dot", "general"):
            magnitude *= 8 * model.config.hidden  # a rounded energy changes a weight, a context and the next states
        return self.of(magnitude, steps * self.SUMS, next(model.parameters()).dtype)

    def assert_same(self, found, expected, tolerance):
        """Requires equality within the tolerance."""
        np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=0, atol=tolerance)


@pytest.fixture(scope="session")
def rounding():
    """The allowed differences by rounding."""
    return Rounding()


@pytest.fixture
def int8(monkeypatch):
    """Multiplies the smallest matrices in eight bits, too; skips a test where PyTorch has no such products."""
    try:
        numerics.weight_steps()
    except ResourceError as error:
        pytest.skip(str(error))
    monkeypatch.setattr(numerics, "_SMALLEST", 0)
    monkeypatch.setattr(numerics, "_FEWEST_INPUTS", 0)


def write_reversal(folder, name, count, seed):
    """Lines of 3 to 7 words, and the same words in capitals from back to front."""
    generator = np.random.default_rng(seed)
    lines = [[WORDS[i] for i in generator.integers(0, len(WORDS), generator.integers(3, 8))] for _ in range(count)]
    source, target = folder / f"{name}.src", folder / f"{name}.tgt"
    source.write_text("".join(" ".join(line) + "\n" for line in lines))
    target.write_text("".join(" ".join(word.upper() for word in reversed(line)) + "\n" for line in lines))
    return source, target


@pytest.fixture(scope="session")
def reversal(tmp_path_factory):
    """A prepared corpus whose translation is the reversal: 3,000 training pairs, 60 of dev, 60 of test."""
    from helpers.parallel_texts import prepare

    folder = tmp_path_factory.mktemp("reversal")
    counts = {"train": 3000, "dev": 60, "test": 60}
    pairs = {name: write_reversal(folder, name, counts[name], seed) for seed, name in enumerate(counts)}
    prepare(pairs["train"], folder / "data", PrepConfig(vocabulary="none"), ("xx", "yy"), pairs["dev"], pairs["test"])
    return Corpus.open(folder / "data")


@pytest.fixture
def nmtalign(tmp_path):
    """Runs `nmtalign ARGUMENTS` as a separate process in tmp_path; `stdin` is bytes."""

    def run(*arguments, stdin=b"", check=True, cwd=tmp_path):
        result = run_nmtalign(*arguments, cwd=cwd, stdin=stdin)
        if check and result.returncode:
            raise AssertionError(f"exit code {result.returncode}: {result.stderr.decode()}")
        return result

    return run


@pytest.fixture(scope="session")
def random_model_directory():
    """Makes FOLDER/model with random weights; `adjust` may change them. The words are English and French by default."""

    def make(
        folder,
        source_words=ENGLISH,
        target_words=FRENCH,
        adjust=disturb,
        seed=3,
        languages=("en", "fr"),
        tokenizers=None,
        **settings,
    ):
        words = {"source_vocabulary_size": len(source_words) + 2, "target_vocabulary_size": len(target_words) + 2}
        sizes = {"embedding": 6, "hidden": 8, "attention_hidden": 5, "maxout": 6, "output_rank": 0, "heads": 2}
        configs = ModelConfig(**words, **{**sizes, "initialisation": "xavier", **settings}), TrainingConfig()
        tokenizers = tokenizers or Tokenizers.moses(*languages)
        return write_model(folder, (source_words, target_words), tokenizers, languages, "tiny", configs, adjust, seed)

    return make


@pytest.fixture(scope="session")
def blind_model(tmp_path_factory, random_model_directory):
    """A random model without attention."""
    return random_model_directory(tmp_path_factory.mktemp("blind"), attention="none")


@pytest.fixture
def small_disk():
    """No file can grow beyond a number of bytes in a block."""
    resource = pytest.importorskip("resource")  # which Windows lacks

    @contextlib.contextmanager
    def limited(size):
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return limited


@pytest.fixture
def edit_hdf5():
    """Opens a file of nmtalign to change it, and forges its checksum, which would report the change."""

    @contextlib.contextmanager
    def edited(path):
        with h5py.File(path, "r+") as file:
            yield file
        seal(path)

    return edited
