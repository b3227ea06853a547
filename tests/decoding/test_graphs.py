"""Searches by graphs: what the plain way finds, whatever comes and goes; real ones where there is a GPU."""

import dataclasses
from collections.abc import Callable

import pytest
import torch

from nmtalign.config import ModelConfig
from nmtalign.core.inference import Inference
from nmtalign.core.model import TranslationModel
from nmtalign.data.batches import make_source
from nmtalign.decoding.graphs import Bucket, GraphedScorer
from nmtalign.decoding.scorer import ModelScorer
from nmtalign.decoding.search import SearchOptions, beam_search

TINY = ModelConfig(
    source_vocabulary_size=11,
    target_vocabulary_size=30,
    embedding=5,
    hidden=6,
    attention_hidden=7,
    maxout=4,
    output_rank=3,
    initialisation="xavier",
)
KINDS = [
    TINY,
    dataclasses.replace(TINY, order="look-update-generate", cell="cudnn"),
    dataclasses.replace(TINY, attention="none", bidirectional=False),
    dataclasses.replace(TINY, coverage="linguistic"),
    dataclasses.replace(TINY, attention="general", readout_previous_word=False),
]


class Again:
    """Does the work again, as a graph would."""

    def __init__(self) -> None:
        self.recorded = self.replayed = 0

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        self.recorded += 1
        work()

        def replay() -> None:
            self.replayed += 1
            work()

        return replay


def make_inference(config: ModelConfig, device: str = "cpu", dtype: torch.dtype = torch.float64) -> Inference:
    torch.manual_seed(4)
    model = TranslationModel(config).to(device, dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2).add_(torch.randn_like(parameter) * 0.3)
    return Inference(model)


def sentences(count: int, longest: int = 9) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(count)
    lengths = torch.randint(1, longest, (count,), generator=generator).tolist()
    return make_source([torch.randint(2, 11, (n,), generator=generator).tolist() for n in lengths])


def agree(found, expected, tolerance=1e-9):
    for ours, theirs in zip(found, expected, strict=True):
        assert [h.tokens for h in ours] == [h.tokens for h in theirs]
        for one, other in zip(ours, theirs, strict=True):
            assert one.score == pytest.approx(other.score, abs=tolerance)
            if other.weights is not None:
                assert one.weights == pytest.approx(other.weights, abs=max(tolerance, 1e-6))


@pytest.mark.parametrize("config", KINDS, ids=lambda c: f"{c.cell}-{c.attention}-{c.coverage}")
@pytest.mark.parametrize("count", [1, 16, 50])
def test_a_search_by_graphs_finds_what_the_plain_way_finds(config: ModelConfig, count: int) -> None:
    inference = make_inference(config)
    recorder = Again()
    graphed = GraphedScorer(inference, recorder)
    options = SearchOptions(beam=4, n_best=3, keep_weights=True)
    for longest in (9, 5, 9, 3):
        source, mask = sentences(count, longest)
        agree(beam_search(graphed, source, mask, options), beam_search(ModelScorer(inference), source, mask, options))
    assert not graphed.problem
    assert recorder.replayed > recorder.recorded


def test_a_batch_that_has_shrunk_goes_over_to_a_smaller_graph() -> None:
    graphed = GraphedScorer(make_inference(TINY), recorder := Again())
    source, mask = sentences(50)
    beam_search(graphed, source, mask, SearchOptions(beam=4))
    assert recorder.recorded > 1


def test_buckets() -> None:
    assert Bucket.of(1, 12, 5) == Bucket(16, 12, 8)
    assert [Bucket.of(n, 1, 4).sentences for n in (16, 17, 25, 33, 49, 65, 500)] == [16, 24, 32, 48, 64, 96, 512]


@pytest.mark.parametrize("fault", ["raised", "wrong"])
def test_graphs_that_cannot_be_had_or_are_wrong_are_given_up(fault: str) -> None:
    inference = make_inference(TINY)

    class Broken(Again):
        def record(self, work: Callable[[], None]) -> Callable[[], None]:
            if fault == "raised":
                raise RuntimeError("operation not permitted when stream is capturing")
            return lambda: None

    graphed = GraphedScorer(inference, Broken())
    source, mask = sentences(20)
    options = SearchOptions(beam=3)
    expected = beam_search(ModelScorer(inference), source, mask, options)
    for _ in range(2):
        agree(beam_search(graphed, source, mask, options), expected)
    assert graphed.problem


def test_only_so_many_graphs_are_kept() -> None:
    graphed = GraphedScorer(make_inference(TINY), Again(), limit=2)
    for longest in (15, 10, 6, 3):
        beam_search(graphed, *sentences(4, longest), SearchOptions(beam=2))
    assert len(graphed._recordings) == 2


@pytest.mark.parametrize("config", KINDS, ids=lambda c: f"{c.cell}-{c.attention}-{c.coverage}")
def test_a_step_looks_at_no_value(config: ModelConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    inference = make_inference(config)
    graphed = GraphedScorer(inference, Again())
    source, mask = sentences(4)
    beam_search(graphed, source, mask, SearchOptions(beam=2))
    places = next(iter(graphed._recordings.values())).places

    def looked(*_: object) -> None:
        raise AssertionError("a graph has no values to look at")

    for name in ("__bool__", "item", "tolist", "__float__", "__int__", "nonzero", "cpu", "numpy"):
        monkeypatch.setattr(torch.Tensor, name, looked)
    with torch.inference_mode():
        places.compute()


@pytest.mark.gpu
@pytest.mark.parametrize("config", KINDS, ids=lambda c: f"{c.cell}-{c.attention}-{c.coverage}")
def test_real_graphs_find_what_the_plain_way_finds(config: ModelConfig) -> None:
    inference = make_inference(config, "cuda")
    graphed = GraphedScorer(inference)
    options = SearchOptions(beam=4, n_best=3, keep_weights=True)
    for count in (3, 40, 3, 40):
        source, mask = (part.cuda() for part in sentences(count))
        agree(
            beam_search(graphed, source, mask, options),
            beam_search(ModelScorer(inference), source, mask, options),
            1e-6,
        )
    assert not graphed.problem
