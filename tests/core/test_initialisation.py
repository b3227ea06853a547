"""PAPER section 3: how weights start."""

import math

import pytest
import torch

from nmtalign.core.model import TranslationModel
from nmtalign.settings.training_settings import ModelConfig

SIZES = {"embedding": 80, "hidden": 100, "attention_hidden": 90, "maxout": 50}


def check_statistics(model, deviation):
    """Biases are 0, recurrent blocks orthogonal, all else has the deviation of its name and value, where 0 is 0."""
    for name, parameter in model.named_parameters():
        value = parameter.detach()
        wanted = 0 if "bias" in name else deviation(name, value)
        if not wanted:
            assert not value.any(), name
        elif name.endswith("recurrent_weight"):
            for block in value.view(-1, 100, 100):
                torch.testing.assert_close(block @ block.T, torch.eye(100), atol=1e-4, rtol=0)
        else:
            assert abs(value.std().item() - wanted) < 6 * wanted / math.sqrt(2 * value.numel()), name
            assert abs(value.mean().item()) < 6 * wanted / math.sqrt(value.numel()), name


@pytest.mark.parametrize("options", [{}, {"cell": "cudnn"}, {"coverage": "linguistic"}, {"attention": "general"}])
def test_the_papers_statistics(options):
    torch.manual_seed(0)
    check_statistics(TranslationModel(ModelConfig(500, 600, **SIZES, **options)), of_the_paper)


def of_the_paper(name, value):
    if name.endswith("attention.vector"):
        return 0
    return 0.001 if name.endswith(("query_weight", "key_weight", "coverage_weight", "fertility_weight")) else 0.01


@pytest.mark.parametrize("options", [{}, {"attention": "general"}, {"output_rank": 0, "cell": "cudnn"}])
def test_lecuns_deviation_is_that_of_the_inputs(options):
    torch.manual_seed(0)
    model = TranslationModel(ModelConfig(500, 600, **SIZES | options, initialisation="lecun"))
    check_statistics(model, lambda name, value: value.shape[-1] ** -0.5)
