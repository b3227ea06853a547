"""Systems around the article: which are trained, the one table and the one figure, and what is refused at the start."""

import dataclasses
import json
import re

import pytest
from helpers.reproductions import make_plan_in, reach, rows_of

from nmtalign.data.corpus import Corpus
from nmtalign.data.prepare import prepare
from nmtalign.errors import UsageError
from nmtalign.reproduction import experiments
from nmtalign.reproduction.experiments import SCALES, EqualBudget
from nmtalign.reproduction.plan import ReproductionRequest, make_plan
from nmtalign.reproduction.preparation import Corpora, with_budget
from nmtalign.settings.command_settings import PrepConfig
from nmtalign.settings.presets import SYSTEMS
from nmtalign.settings.workspace import load_workspace

SOME = "rnnsearch,rnnencdec,light"
NAMES = [*SYSTEMS, "bytes"]


@pytest.fixture(scope="module", params=[SOME, pytest.param("all", marks=pytest.mark.slow)])
def results(request, make_sample, smallest):
    """The report of systems; read only."""
    asked = {"systems": request.param, "reordered": 0, "long": 0}
    results = reach(make_plan_in(make_sample(), smallest, EqualBudget("updates", 1), **asked))
    assert results.outcome.failures == {}
    return results


def test_the_table_has_a_row_per_system_with_scores_lengths_alignments_and_cost(results):
    text = (results.plan.request.folder / "report.md").read_text(encoding="utf-8")
    names = [system.name for system in results.plan.systems]
    attentive = {system.name for system in results.plan.systems if system.attends}
    rows = rows_of(text, "| system | BLEU |")
    head = [cell.strip() for cell in text[text.index("| system | BLEU |") :].splitlines()[0].split("|")[1:-1]]
    assert [row[0] for row in rows] == names
    assert 0 < len(attentive) < len(names)
    for row in rows:
        cells = dict(zip(head, row, strict=True))
        assert re.fullmatch(r"[\d.]+" if row[0] in attentive else "none", cells["AER"])
        assert float(cells["words/s"].replace(",", "")) > 0
        assert cells["updates"] == "1"
        assert int(cells["parameters"].replace(",", "")) > 1000
        assert cells["p against rnnsearch"] == "–" or 0 <= float(cells["p against rnnsearch"]) <= 1
        assert [float(cells[name]) for name in head if re.fullmatch(r"\d+-\d+ words", name)] != []
    assert [row[0] for row in rows_of(text, "| model | seed | updates |")] == names
    assert "Table 1" not in text
    assert f"--systems {results.plan.request.systems}" in text


def test_the_figure_has_a_line_per_system(results):
    page = (results.plan.request.folder / "report.html").read_text(encoding="utf-8")
    figure = page[page.index("Figure 2") :]
    legend = re.findall(r"<text[^>]*>([^<]*)</text>", figure[: figure.index("</svg>")])
    assert [text for text in legend if text in NAMES] == [system.name for system in results.plan.systems]


@pytest.mark.parametrize("scale", SCALES)
def test_every_system_fits_every_scale_and_has_its_sizes_data_and_search(workspace, scale):
    request = ReproductionRequest(SCALES[scale], systems="all", models="RNNsearch-50")
    plan = make_plan(request, load_workspace(workspace / "nmtalign.toml"))
    base = plan.named("RNNsearch-50")
    assert [system.name for system in plan.systems] == ["RNNsearch-50", *NAMES]
    assert plan.named("rnnsearch").trained_as == "RNNsearch-50"  # the same model is not trained twice
    for system in plan.systems:
        vocabulary = {"vocabulary": "bytes"} if system.name == "bytes" else {}
        assert system.prep == dataclasses.replace(base.prep, **vocabulary)
        assert system.search == base.search
        assert (system.model.embedding, system.model.hidden) == (base.model.embedding, base.model.hidden)
        assert (system.training.batch_size, system.training.max_length) == (base.training.batch_size, 50)
        assert system.experiment.preset == "rnnsearch-50"


def test_a_system_brings_its_own_training_settings_and_the_report_names_them(plan, monkeypatch):
    monkeypatch.setattr(experiments, "_OWN_TRAINING", {"light": {"learning_rate": 1e-4, "warmup": 7}})
    made = plan(EqualBudget("words", 20_000), systems=SOME)
    assert [made.named(name).training.warmup for name in ("rnnsearch", "light")] == [100, 7]
    assert made.named("light").experiment.what == "cell = light, learning_rate = 0.0001, warmup = 7"
    Corpora(made).make("corpus", lambda pairs: None, lambda step: None)
    corpus = Corpus.open(made.base_corpus)
    assert len({with_budget(made, system, corpus, 1).max_updates for system in made.systems}) == 1


def test_systems_alone_models_besides_and_mistakes(workspace, monkeypatch):
    texts = load_workspace(workspace / "nmtalign.toml")

    def names(**asked):
        return [system.name for system in make_plan(ReproductionRequest(SCALES["tiny"], **asked), texts).systems]

    assert names(systems="light, rnnencdec") == ["rnnencdec", "light"]
    assert names(systems="light", ablations="cell") == ["RNNsearch-50", "light", "cell-cudnn"]
    assert names(systems="none") == names()
    with pytest.raises(UsageError, match=f"^--systems spell: unknown; give all, none, or some of {','.join(NAMES)}$"):
        names(systems="light,spell")
    monkeypatch.setattr(experiments, "SYSTEMS", {"deep": {"layers": 2}})
    with pytest.raises(UsageError, match=r"^system deep: layers = 2 does not go with .*: the orders of the paper have"):
        names(systems="all")


def test_a_system_that_does_not_fit_the_sizes_of_a_scale_is_refused_by_name(workspace):
    odd = dataclasses.replace(SCALES["tiny"], settings={**SCALES["tiny"].settings, "embedding": 6})
    request = ReproductionRequest(odd, systems="all")
    with pytest.raises(UsageError, match=r"^system transformer: scale tiny: embedding = 6 does not go with heads = 4"):
        make_plan(request, load_workspace(workspace / "nmtalign.toml"))


def test_a_prepared_corpus_gives_the_scores_of_its_text(plan, workspace):
    pairs = [(workspace / f"{name}.en", workspace / f"{name}.fr") for name in ("train", "dev", "test")]
    prepare(pairs[0], workspace / "data", PrepConfig(shortlist="2000"), ("en", "fr"), *pairs[1:])
    first = reach(plan(systems="light")).plan.request.folder
    for name in ("train", "dev"):
        for language in ("en", "fr"):
            (workspace / f"{name}.{language}").unlink()
    toml = workspace / "nmtalign.toml"
    toml.write_text(re.sub("(?m)^(train|dev) = .*\n", "", toml.read_text()))
    second = reach(plan(systems="light", folder="again"))
    assert (first / "scores.csv").read_bytes() == (second.plan.request.folder / "scores.csv").read_bytes()
    facts = json.loads((second.plan.request.folder / "settings.json").read_text())
    assert facts["corpora"]["corpus"]["hash"] == Corpus.open(workspace / "data").hash
    assert not (second.plan.work / "corpora").exists()
    with pytest.raises(UsageError, match=r"words-few needs other vocabularies: name the train text under \[corpus\]"):
        plan(systems="light", ablations="vocabulary")
