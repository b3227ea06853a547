"""What is peculiar to the Transformer: sizes, tied weights, caches, readings. `test_model` has its equations."""

import copy
import dataclasses

import pytest
import torch
from helpers import core_models as models
from helpers import naive_transformer as naive
from helpers import score_tables as tables
from helpers.parallel_texts import prepared
from helpers.trainings import CONFIG, train, weights

from nmtalign import align_files
from nmtalign.core.model import make_batch
from nmtalign.core.numerics import fast_dropout
from nmtalign.errors import UsageError
from nmtalign.model_directory import describe_model, export_model, load_model
from nmtalign.text.tokenizer import Vocabulary
from nmtalign.training.distributed import World
from nmtalign.training.updates import TrainingSetup


@pytest.mark.parametrize("first", [0, 1020, 5000])
def test_positions_are_the_articles_sinusoids_in_long_texts_too(first):
    encoder = tables.small_model(**tables.TRANSFORMER).double().encoder
    vectors = torch.zeros(1, 8, encoder.output_size, dtype=torch.float64)
    expected = torch.stack([naive.position(place, encoder.output_size) for place in range(first, first + 8)])
    torch.testing.assert_close(encoder.with_positions(vectors, first)[0], expected)


def test_dropout_has_its_share_and_its_mean():
    torch.manual_seed(0)
    dropped = fast_dropout(torch.ones(400, 501), 0.3)
    assert float((dropped == 0).float().mean()) == pytest.approx(0.3, abs=0.01)
    assert dropped.unique().tolist() == pytest.approx([0, 1 / 0.7])
    x = torch.ones(50, requires_grad=True)
    kept = fast_dropout(x, 0.5)
    kept.sum().backward()
    assert torch.equal(x.grad, kept.detach())


@pytest.fixture(scope="module")
def joint_corpus(tmp_path_factory, reversal):
    """The corpus of reversals with one vocabulary for both sides."""
    lines = [" ".join(reversal.source_vocabulary.words[2 + (i * k) % 12] for k in range(1, 6)) for i in range(400)]
    pairs = [(line, line.upper()) for line in lines]
    settings = {"vocabulary": "bpe", "size": "19", "joint": True}
    return prepared(tmp_path_factory.mktemp("joint"), pairs, pairs[:20], ("xx", "yy"), **settings)


def test_one_embedding_is_saved_loaded_exported_and_counted_once(tmp_path, joint_corpus):
    config = dataclasses.replace(models.TRANSFORMER, embedding=16, hidden=32, shared_embeddings=True, dropout=0.1)
    assert joint_corpus.source_vocabulary == joint_corpus.target_vocabulary
    train(joint_corpus, tmp_path / "m", model_config=config)
    assert not {"source_embedding.weight", "readout.output_weight"} & weights(tmp_path / "m").keys()
    loaded = load_model(tmp_path / "m").model
    counted = sum(parameter.numel() for parameter in loaded.parameters())
    assert describe_model(tmp_path / "m")["parameters"] == counted
    assert loaded.source_embedding.weight is loaded.target_embedding.weight is loaded.readout.output_weight
    assert torch.equal(loaded.target_embedding.weight, weights(tmp_path / "m", "best")["target_embedding.weight"])
    export_model(tmp_path / "m", tmp_path / "small", "int8")
    near = load_model(tmp_path / "small").model
    assert near.source_embedding.weight is near.readout.output_weight
    (tmp_path / "t").write_text("w1 w2\n")
    with pytest.raises(UsageError, match=r"no posterior; give --reading shifted"):
        align_files(tmp_path / "m", tmp_path / "t", tmp_path / "t", tmp_path / "b.h5", reading="posterior")
    half = load_model(tmp_path / "m", precision="bf16").model
    assert half.readout.output_weight.dtype == half.source_embedding.weight.dtype == torch.bfloat16
    apart, world = copy.copy(joint_corpus), World(torch.device("cpu"))
    apart.target_vocabulary = Vocabulary([*joint_corpus.target_vocabulary.words[:-1], "another"])
    for corpus, shared, one in [(joint_corpus, True, True), (joint_corpus, False, False), (apart, True, False)]:
        settings = dataclasses.replace(config, shared_embeddings=shared)
        setup = TrainingSetup(corpus, tmp_path / "new", settings, CONFIG, world)
        assert setup.model_config.one_embedding == one


def test_gradient_of_guided_alignment_reaches_only_the_alignment_layer():
    model = models.make_model(dataclasses.replace(models.TRANSFORMER, alignment_layer=2))
    batch = make_batch(models.PAIRS)
    loss = model.loss(batch.source, batch.source_mask, batch.target, batch.target_mask)
    loss.weights[..., 0].log().sum().backward()
    assert all(layer.source_weight.grad.abs().sum() > 0 for layer in model.decoder.layers[:2])
    assert all(layer.source_weight.grad is None for layer in model.decoder.layers[2:])
    assert model.readout.output_weight.grad is None
