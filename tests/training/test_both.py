"""Both directions in one run: the loss of their disagreement, two complete model directories, and exact resumption."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from helpers import trainings
from helpers.recording import Again

from nmtalign.data.batches import make_batch
from nmtalign.data.corpus import Corpus
from nmtalign.data.prepare import prepare
from nmtalign.errors import FormatError, UsageError
from nmtalign.model_directory import load_model
from nmtalign.settings.command_settings import PrepConfig
from nmtalign.settings.training_settings import ModelConfig
from nmtalign.training.directions import BothWays
from nmtalign.training.events import Progressed, Validated
from nmtalign.training.graphs import GraphedLoss
from nmtalign.training.loop import Trainer
from nmtalign.training.updates import BothLoss, EagerLoss, disagreement

CONFIG, weights = replace(trainings.CONFIG, agreement=True), trainings.weights
SMALL = {"embedding": 4, "hidden": 6, "attention_hidden": 5, "maxout": 4, "initialisation": "xavier"}


def sizes(corpus, **changes):
    return ModelConfig(
        source_vocabulary_size=len(corpus.source_vocabulary),
        target_vocabulary_size=len(corpus.target_vocabulary),
        **{"embedding": 12, "hidden": 16, "attention_hidden": 16, "maxout": 8, "output_rank": 0, **changes},
        initialisation="xavier",
    )


def train(corpus, folder, config=CONFIG, stop_at=None, restart=False, **model):
    return trainings.train(corpus, folder, sizes(corpus, **model), config, stop_at, restart)


def same(one, other, name="last"):
    ours, theirs = weights(one, name), weights(other, name)
    return all(torch.equal(ours[key], theirs[key]) for key in ours | theirs)


def both_of(dtype=torch.float64, **options):
    torch.manual_seed(5)
    return BothWays(ModelConfig(6, 7, **{**SMALL, **options})).to(dtype)


def batch_of(seed=0):
    generator = torch.Generator().manual_seed(seed)
    draw = lambda high, count: torch.randint(2, high, (count,), generator=generator).tolist()  # noqa: E731
    return make_batch([(draw(6, 3), draw(7, 5)), (draw(6, 2), draw(7, 1)), (draw(6, 5), draw(7, 2))])


def losses(models, batch):
    there = models.there.loss(*batch.inputs())
    return there, models.back.loss(batch.target, batch.target_mask, batch.source, batch.source_mask)


def test_disagreement_is_the_papers_multiplication_without_the_ends():
    models, batch = both_of(), batch_of()
    there, back = losses(models, batch)
    expected = 0.0
    for pair, (source, target) in enumerate(((3, 5), (2, 1), (5, 2))):
        ours, theirs = there.weights[:target, pair, :source], back.weights[:source, pair, :target]
        expected -= float((ours * theirs.t()).sum().log().detach())
    found = disagreement(there, back, batch.source_mask, batch.target_mask)
    assert float(found.detach()) == pytest.approx(expected)


def test_the_loss_is_that_of_both_and_of_their_disagreement():
    models, batch = both_of(), batch_of()
    there, back = losses(models, batch)
    apart = disagreement(there, back, batch.source_mask, batch.target_mask)
    objective, sums = BothLoss(models, replace(CONFIG, agreement_weight=0.3))(*batch.inputs())
    torch.testing.assert_close(objective, there.objective + back.objective + 0.3 * apart)
    torch.testing.assert_close(sums, torch.stack([there.nll, apart * 0, back.nll, apart]))


def test_gradients_with_agreement_and_links_are_those_of_differences():
    models, batch = both_of(order="look-generate-update"), batch_of()
    guide = torch.zeros(3, batch.target.shape[1], batch.source.shape[1], dtype=torch.bool)
    guide[:, 0, 1] = guide[0, 3, 2] = True
    batch = replace(batch, guide=guide, linked=4)
    config = replace(CONFIG, agreement_weight=2.0, guided_weight=0.5, label_smoothing=0.1)
    loss = BothLoss(models, config)
    names = [f"{way}.decoder.attention.{part}" for way in ("there", "back") for part in ("query_weight", "key_weight")]
    parameters = [dict(models.named_parameters())[name] for name in names]
    found = torch.autograd.grad(loss(*batch.inputs())[0], parameters)
    for parameter, gradient in zip(parameters, found, strict=True):
        assert float(gradient.norm()) > 0
        for place in [(0, 0), (4, 3)]:
            sides = []
            for step in (1e-6, -1e-6):
                with torch.no_grad():
                    parameter[place] += step
                    sides.append(float(loss(*batch.inputs())[0]))
                    parameter[place] -= step
            assert float(gradient[place]) == pytest.approx((sides[0] - sides[1]) / 2e-6, rel=1e-4, abs=1e-7)


def test_graphs_over_padded_batches_leave_what_the_plain_way_leaves():
    models = both_of()
    loss = BothLoss(models, CONFIG)
    eager = EagerLoss(loss, torch.device("cpu"))
    graphed = GraphedLoss(models, loss, eager, pytest.fail, recorder=Again())
    for seed in range(4):
        found = []
        for way in (eager, graphed):
            sums = way(batch_of(seed), 0.5)
            found.append([sums, *(parameter.grad.clone() for parameter in models.parameters())])
            models.zero_grad(set_to_none=True)
        for plain, replayed in zip(*found, strict=True):
            torch.testing.assert_close(plain, replayed, rtol=1e-6, atol=1e-9)


def test_two_model_directories_that_translate_and_align(reversal, tmp_path):
    events = train(reversal, tmp_path / "m")
    progress = [event for event in events if isinstance(event, Progressed)]
    assert progress[-1].backward_loss < progress[0].backward_loss
    assert all(event.disagreement is not None for event in progress)
    validated = [event for event in events if isinstance(event, Validated)]
    assert all(event.backward_loss > 0 and event.backward_bleu is not None for event in validated)
    logged = [json.loads(line) for line in (tmp_path / "m/train.jsonl").read_text().splitlines()]
    assert logged == [json.loads(json.dumps(event.as_dict())) for event in events]
    forward, backward = load_model(tmp_path / "m", device="cpu"), load_model(tmp_path / "m/backward", device="cpu")
    assert (backward.source_language, backward.target_language) == ("yy", "xx")
    assert backward.source_vocabulary == forward.target_vocabulary == reversal.target_vocabulary
    assert backward.target_vocabulary == reversal.source_vocabulary
    source, target = reversal.splits["dev"].pair(0)
    batch, turned = make_batch([(source, target)]), make_batch([(target, source)])
    assert forward.model.force(*batch.inputs()).weights.shape == (1, len(target) + 1, len(source) + 1)
    assert backward.model.force(*turned.inputs()).weights.shape == (1, len(source) + 1, len(target) + 1)
    assert not (tmp_path / "m/backward/training_state.safetensors").exists()
    shutil.rmtree(tmp_path / "m/backward")
    with pytest.raises(FormatError, match=r"m/backward: no nmtalign model here"):
        train(reversal, tmp_path / "m", replace(CONFIG, max_updates=20))


def test_resumed_equals_uninterrupted_bit_for_bit(reversal, tmp_path):
    train(reversal, tmp_path / "whole", dropout=0.2)
    assert not train(reversal, tmp_path / "parts", stop_at=9, dropout=0.2)[-1].complete
    assert train(reversal, tmp_path / "parts", dropout=0.2)[0].resumed
    for way in ("", "backward"):
        for name in ("last", "best"):
            assert same(tmp_path / "whole" / way, tmp_path / "parts" / way, name)


def test_without_weight_the_other_direction_changes_nothing(reversal, tmp_path):
    """Nor does the first model see the second: its own loss and gradient are those of a training of one direction."""
    config = replace(CONFIG, agreement_weight=0.0, clip_norm=0.0)
    train(reversal, tmp_path / "both", config)
    train(reversal, tmp_path / "one", replace(config, agreement=False))
    for name, tensor in weights(tmp_path / "one").items():
        torch.testing.assert_close(weights(tmp_path / "both")[name], tensor, rtol=1e-3, atol=1e-4)


def test_other_settings_are_refused_and_restart_begins_both_anew(reversal, tmp_path):
    config = replace(CONFIG, max_updates=2)
    train(reversal, tmp_path / "m", config)
    for other in ({"agreement": False}, {"agreement_weight": 0.5}):
        with pytest.raises(UsageError, match="other settings"):
            train(reversal, tmp_path / "m", replace(config, **other))
    assert not train(reversal, tmp_path / "m", replace(config, agreement_weight=0.5), restart=True)[0].resumed


def test_restart_removes_a_direction_that_is_no_longer_trained_and_no_other_model(reversal, tmp_path):
    alone = replace(CONFIG, agreement=False, max_updates=1)
    train(reversal, tmp_path / "m", replace(CONFIG, max_updates=1))
    train(reversal, tmp_path / "m", alone, restart=True)
    assert not (tmp_path / "m/backward").exists()
    train(reversal, tmp_path / "m/backward", alone)
    train(reversal, tmp_path / "m", alone, restart=True)
    assert weights(tmp_path / "m/backward")


def test_a_separate_model_in_the_folder_of_the_other_direction_is_not_replaced(reversal, tmp_path):
    alone = replace(CONFIG, agreement=False, max_updates=1)
    train(reversal, tmp_path / "m/backward", alone)
    last = tmp_path / "m/backward/last.safetensors"
    before = last.read_bytes()
    with pytest.raises(UsageError, match="m/backward: contains another model, which a training with agreement would"):
        train(reversal, tmp_path / "m", replace(CONFIG, max_updates=1))
    assert last.read_bytes() == before
    assert not (tmp_path / "m/config.json").exists()
    train(reversal, tmp_path / "m", replace(CONFIG, max_updates=1), restart=True)
    assert last.read_bytes() != before


def test_restart_does_not_remove_the_model_to_start_from(reversal, tmp_path):
    train(reversal, tmp_path / "m", replace(CONFIG, max_updates=1))
    texts = [tuple(reversal.folder.parent / f"{name}.{side}" for side in ("tgt", "src")) for name in ("train", "dev")]
    prepare(texts[0], tmp_path / "turned", PrepConfig(vocabulary="none"), ("yy", "xx"), texts[1])
    from_backward = replace(CONFIG, agreement=False, init_from=str(tmp_path / "m/backward"))
    with pytest.raises(UsageError, match="training anew would remove this folder; give another"):
        train(Corpus.open(tmp_path / "turned"), tmp_path / "m", from_backward, restart=True)
    with pytest.raises(UsageError, match="training anew would remove this folder; give another"):
        train(reversal, tmp_path / "m", replace(CONFIG, init_from=str(tmp_path / "m")), restart=True)
    assert weights(tmp_path / "m")
    assert weights(tmp_path / "m/backward")


def test_what_cannot_agree_is_refused(reversal, tmp_path):
    with pytest.raises(UsageError, match="only models with attention can agree"):
        train(reversal, tmp_path / "m", attention="none")
    with pytest.raises(UsageError, match="agreement_weight = -1"):
        replace(CONFIG, agreement_weight=-1.0)


def test_both_directions_start_from_models_of_both(reversal, tmp_path):
    train(reversal, tmp_path / "first", replace(CONFIG, max_updates=2))
    config = replace(CONFIG, init_from=str(tmp_path / "first"))
    trainer = Trainer(reversal, tmp_path / "second", "tiny", sizes(reversal), config, lambda event: None)
    for model, way in ((trainer.model.there, ""), (trainer.model.back, "backward")):
        given = weights(tmp_path / "first" / way, "best")
        assert all(torch.equal(tensor, given[name]) for name, tensor in model.state_dict().items())
    train(reversal, tmp_path / "alone", replace(CONFIG, agreement=False, max_updates=2))
    with pytest.raises(UsageError, match=r"alone has no backward/, .* trained with agreement"):
        train(reversal, tmp_path / "m", replace(CONFIG, init_from=str(tmp_path / "alone")))


@pytest.mark.parametrize("vocabulary", ["word", "bpe"])
def test_words_and_tokenisers_change_places(tmp_path, vocabulary):
    paths = tmp_path / "t.en", tmp_path / "t.fr"
    paths[0].write_text("A cat isn't here.\nIt rains a lot.\n" * 3)
    paths[1].write_text("Le chat n'est pas là.\nIl pleut beaucoup.\n" * 3)
    prepare(paths, tmp_path / "data", PrepConfig(vocabulary=vocabulary, size="40"), ("en", "fr"), dev=paths)
    train(Corpus.open(tmp_path / "data"), tmp_path / "m", replace(CONFIG, max_updates=1, batch_size=3))
    backward = load_model(tmp_path / "m/backward", device="cpu")
    forward = load_model(tmp_path / "m", device="cpu")
    line = "Le chat n'est pas là."
    tokens = backward.tokenizers.source.tokenize(line)
    assert tokens == forward.tokenizers.target.tokenize(line)
    assert 1 not in backward.source_vocabulary.encode(tokens)
    assert backward.tokenizers.source_language == "fr"
    english = backward.tokenizers.target
    assert english.detokenize(english.tokenize("A cat isn't here.")) == "A cat isn't here."
