"""The Python interface: from two texts to a model, its scores and its alignments."""

import math

import pytest

import nmtalign

TINY = {"hidden": 8, "embedding": 4, "attention_hidden": 4, "maxout": 4, "device": "cpu", "threads": 1, "seed": 1}


def test_from_two_texts_to_scores(tmp_path) -> None:
    source, target = tmp_path / "train.en", tmp_path / "train.fr"
    source.write_text("the fox runs\na dog sleeps\n" * 10)
    target.write_text("le renard court\nun chien dort\n" * 10)
    data, model = tmp_path / "data", tmp_path / "model"
    pair = (source, target)
    summary = nmtalign.prepare(*pair, data, languages=("en", "fr"), dev=pair, shortlist="9", workers=1)
    assert (summary.splits["train"].kept, summary.source_vocabulary_size) == (20, 8)
    events: list = []
    budget = {"max_updates": 3, "epochs": 0, "bleu_sentences": 0, "metric": "loss"}
    finished = nmtalign.train(data, model, preset="tiny", events=events, **budget, **TINY)
    assert (finished.update, finished.complete, events[-1]) == (3, True, finished)
    translator = nmtalign.Translator.load(model, beam=2, threads=1)
    (translation,) = translator.translate(["the fox"])
    (scored,) = nmtalign.score_pairs(translator, [("the fox", "le renard")])
    assert isinstance(translation, nmtalign.Translation)
    assert math.isclose(scored.log_prob, sum(scored.token_log_probs), rel_tol=1e-5)
    assert nmtalign.describe(model).keys() != nmtalign.describe(data).keys()
    records = list(nmtalign.align(model, [("the fox", "le renard"), ("", "")], reading="posterior"))
    assert [record.weights.shape for record in records] == [(3, 3), (1, 1)]
    for function in (lambda pairs: nmtalign.align(model, pairs), nmtalign.lexicon):
        with pytest.raises(nmtalign.UsageError, match=r"pair 1: 'a line' is not a pair of lines"):
            list(function(["a line"]))
    (gold := tmp_path / "gold").write_text("0-0 1-1 2-2\n" * 20)
    done = nmtalign.write_alignments(model, *pair, tmp_path / "a.h5", gold=gold, links="threshold", threshold=0.1)
    with nmtalign.AlignmentFile(tmp_path / "a.h5") as alignments:
        assert (done.pairs, len(alignments)) == (20, 20)
    (system,) = nmtalign.aer([("a", tmp_path / "a.h5")], gold, source=source, target=target).systems
    assert done.rates is not None
    assert (system.figures.aer, system.name) == (done.rates.aer, "a")
    from_links = nmtalign.lexicon(*pair, links=gold, tokenized=True, every=2, workers=1)
    assert (from_links.pairs, from_links.links) == (10, 30)
    assert nmtalign.lexicon(data, reverse=True).entries(1, 0.1)[0].source in target.read_text()
    assert nmtalign.lexicon(*pair, model=model, workers=1).pairs == 20
    assert nmtalign.symmetrize([(0, 0), (1, 1)], [(0, 0), (1, 2)], "intersection") == [(0, 0)]
    assert nmtalign.lexicon([("a b", "x y"), ("a", "x")]).entries(1, 0)[0].target == "x"
    same = ["le renard court vite"]
    assert math.isclose(nmtalign.score(same, same, metrics="bleu").value("BLEU"), 100)
    for call, message in (
        (lambda: nmtalign.train(data, model, hiden=3), "nmtalign.train: unknown setting 'hiden'"),
        (lambda: nmtalign.aer([], gold, links_base=2), "nmtalign.aer: links_base = 2: must be at most 1"),
        (lambda: nmtalign.train(data, model, hidden=0), "nmtalign.train: hidden = 0: must be at least 1"),
        (
            lambda: nmtalign.prepare(*pair, data, languages=("en", "fr"), shortlist="2"),
            'nmtalign.prepare: shortlist = "2": give N or N:M',
        ),
    ):
        with pytest.raises(nmtalign.UsageError, match=message):
            call()
    with pytest.raises(nmtalign.FormatError, match="no such file or folder"):
        nmtalign.describe(tmp_path / "absent")
