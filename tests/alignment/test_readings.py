"""Readings of a forced pass: which step's weights a word gets, in both orders."""

import pytest
import torch

from nmtalign.alignment.readings import READINGS, STEPS_AHEAD, force, shifted
from nmtalign.core.model import TranslationModel
from nmtalign.data.batches import make_batch
from nmtalign.settings.command_settings import AlignConfig
from nmtalign.settings.training_settings import ModelConfig

PAIRS = [([2, 3, 4], [2, 5]), ([4, 2], [3, 2, 5, 4]), ([5], [2])]


def make_model(order: str) -> TranslationModel:
    torch.manual_seed(3)
    config = ModelConfig(
        source_vocabulary_size=6,
        target_vocabulary_size=6,
        embedding=5,
        hidden=6,
        attention_hidden=4,
        maxout=5,
        output_rank=0,
        order=order,
        initialisation="xavier",
    )
    model = TranslationModel(config).eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter.mul_(3)
    return model


@pytest.mark.parametrize("order", STEPS_AHEAD)
def test_a_shifted_word_reads_the_first_look_that_knows_it(order: str) -> None:
    """Changing word t changes the shifted weights of word t, and those of no word before it."""
    model = make_model(order)
    source = [2, 3, 4]
    words = [3, 2, 5, 4]
    before = force(model, make_batch([(source, words)]), "shifted").weights[0]
    for place in range(len(words)):
        changed = [*words[:place], 1, *words[place + 1 :]]
        after = force(model, make_batch([(source, changed)]), "shifted").weights[0]
        same = (before - after).abs().amax(1) < 1e-7
        assert same[:place].all()
        assert not same[place]
        # The weights of the step that writes the word do not know it.
        current = [force(model, make_batch([(source, each)]), "current").weights[0] for each in (words, changed)]
        assert torch.equal(current[0][place], current[1][place])


@pytest.mark.parametrize("order", STEPS_AHEAD)
def test_a_batch_reads_as_its_pairs_do(order: str) -> None:
    model = make_model(order)
    for reading in READINGS:
        together = force(model, make_batch(PAIRS), reading)
        for row, pair in enumerate(PAIRS):
            alone = force(model, make_batch([pair]), reading)
            rows, columns = alone.weights.shape[1:]
            torch.testing.assert_close(together.weights[row, :rows, :columns], alone.weights[0], atol=1e-5, rtol=1e-4)
            torch.testing.assert_close(together.log_probs[row, :rows], alone.log_probs[0], atol=1e-5, rtol=1e-4)
            torch.testing.assert_close(alone.weights[0].sum(1), torch.ones(rows))


def test_steps_by_hand() -> None:
    steps = torch.arange(5.0)[None, :, None].expand(2, 5, 1)
    mask = torch.tensor([[True, True, True, True], [True, True, False, False]])
    assert shifted(steps, mask, 2)[..., 0].tolist() == [[2, 3, 4, 3], [2, 1, 2, 3]]
    assert shifted(steps[:, :4], mask, 1)[..., 0].tolist() == [[1, 2, 3, 3], [1, 1, 2, 3]]


def test_every_reading_of_the_settings_is_there() -> None:
    for reading in READINGS:
        assert AlignConfig(reading=reading).reading == reading
