"""The benchmark of translating at tiny sizes: its naive decoder against nmtalign's, and a run of everything."""

import itertools
import sys
from pathlib import Path

import pytest
import torch

BENCH = Path(__file__).parent
sys.path.insert(0, str(BENCH.parent))

from bench.naive_search import NaiveSearch  # noqa: E402
from bench.workload import Size  # noqa: E402
from nmtalign.core.inference import Inference  # noqa: E402
from nmtalign.core.model import TranslationModel  # noqa: E402
from nmtalign.data.batches import make_source  # noqa: E402
from nmtalign.decoding.scorer import ModelScorer  # noqa: E402
from nmtalign.decoding.search import SearchOptions, beam_search  # noqa: E402

OPTIONS = list(
    itertools.product(
        ("paper", "cudnn"),
        ("look-generate-update", "look-update-generate"),
        (("additive", True), ("additive", False), ("none", True), ("none", False)),
    )
)


def random_model(cell, order, attention, rank=0):
    options = {"cell": cell, "order": order, "attention": attention[0], "bidirectional": attention[1]}
    sizes = {"hidden": 16, "embedding": 12, "attention_hidden": 10, "maxout": 8, "output_rank": rank}
    torch.manual_seed(1)
    model = TranslationModel(Size.of("tiny", 60, **options, **sizes).model).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


@pytest.mark.parametrize(("cell", "order", "attention"), OPTIONS)
def test_the_naive_decoder_finds_what_nmtalign_finds(cell, order, attention):
    model = random_model(cell, order, attention, rank=7 if cell == "paper" else 0)
    generator = torch.Generator().manual_seed(2)
    sentences = [torch.randint(2, 60, (n,), generator=generator).tolist() for n in (1, 7, 4, 9, 6)]
    for beam in (1, 5):
        found = beam_search(ModelScorer(Inference(model)), *make_source(sentences), SearchOptions(beam=beam))
        for batch in (1, 3):
            naive = NaiveSearch(model, beam).translate(sentences, batch)
            for [ours], theirs in zip(found, naive, strict=True):
                assert theirs.tokens == ours.tokens
                assert theirs.score == pytest.approx(ours.score, abs=1e-4)
