"""What is trained: settings are resolved, models are shared, budgets become updates, mistakes are one line."""

import dataclasses
from pathlib import Path

import pytest

from nmtalign.data.corpus import Corpus
from nmtalign.errors import UsageError
from nmtalign.reproduction.experiments import SCALES, EqualBudget, Experiment, ablations, chosen_ablations
from nmtalign.reproduction.plan import ReproductionRequest, make_plan
from nmtalign.reproduction.preparation import Corpora, settings_file, with_budget, write_settings
from nmtalign.settings.presets import PRESETS
from nmtalign.settings.workspace import Workspace, load_workspace

ASKED = [
    "encoder",
    "context",
    "score",
    "attention",
    "order",
    "cell",
    "readout",
    "width",
    "reverse",
    "output-rank",
    "vocabulary",
    "beam",
    "loss",
]


@pytest.fixture
def texts(workspace) -> Workspace:
    return load_workspace(workspace / "nmtalign.toml")


def test_at_the_papers_scale_the_four_models_are_the_presets(texts):
    plan = make_plan(ReproductionRequest(SCALES["paper"]), texts)
    for system in plan.systems:
        settings = dataclasses.asdict(system.model) | dataclasses.asdict(system.training)
        for name, value in PRESETS[system.experiment.preset].items():
            if name != "max_updates":  # the budget of the report replaces that of the preset
                assert settings[name] == value, f"{system.name}: {name}"
        assert (system.training.patience, system.training.max_updates) == (0, 0)


@pytest.mark.parametrize("scale", SCALES)
def test_all_models_of_the_paper_are_trained_alike(texts, scale):
    plan = make_plan(ReproductionRequest(SCALES[scale]), texts)
    trainings = {dataclasses.replace(system.training, max_length=0) for system in plan.systems}
    assert len(trainings) == 1
    assert len({system.prep for system in plan.systems}) == 1
    assert len({system.search for system in plan.systems}) == 1


@pytest.mark.parametrize("scale", SCALES)
def test_every_ablation_that_was_asked_for_changes_one_thing(texts, scale):
    plan = make_plan(ReproductionRequest(SCALES[scale], ablations="all"), texts)
    assert list(dict.fromkeys(experiment.ablation for experiment in ablations(SCALES[scale]))) == ASKED
    names = [system.name for system in plan.systems]
    assert len(set(names)) == len(names)
    for system in plan.systems:
        if not system.experiment.ablation:
            continue
        base = plan.named(system.experiment.base)
        differs = [
            field.name
            for one, other in ((system.model, base.model), (system.training, base.training))
            for field in dataclasses.fields(one)
            if getattr(one, field.name) != getattr(other, field.name)
        ]
        differs += ["prep"] * (system.prep != base.prep) + ["search"] * (system.search != base.search)
        if system.trained_as != system.name:
            assert set(differs) <= {"search"}
        elif system.name == "subwords":
            assert differs == ["max_length", "prep"]
        elif system.name == "loss-sum":
            assert system.model == base.model  # its first weights, too: only the training is the paper's
        else:
            assert len(differs) == 1, (system.name, differs)


def test_equal_models_are_trained_once(texts):
    plan = make_plan(ReproductionRequest(SCALES["paper"], models="RNNsearch-50", ablations="beam,loss"), texts)
    assert [system.name for system, _ in plan.models()] == ["RNNsearch-50", "loss-mean"]
    shared = {system.name: system.trained_as for system in plan.systems}
    assert shared["beam-1"] == shared["beam-12"] == shared["loss-sum"] == "RNNsearch-50"


def test_the_base_of_an_ablation_is_trained_too(texts):
    plan = make_plan(ReproductionRequest(SCALES["tiny"], models="RNNencdec-30", ablations="cell,reverse"), texts)
    assert [system.name for system in plan.systems] == [
        "RNNencdec-30",
        "RNNencdec-50",
        "RNNsearch-50",
        "cell-cudnn",
        "source-reversed",
    ]


def test_an_ablation_with_an_unknown_setting_is_named(texts, monkeypatch):
    unknown = Experiment("gone", "of no use", "RNNsearch-50", "magic", changed={"wizardry": True})
    monkeypatch.setattr("nmtalign.reproduction.plan.chosen_ablations", lambda names, scale: [unknown])
    with pytest.raises(UsageError, match="ablation magic: unknown setting 'wizardry'"):
        make_plan(ReproductionRequest(SCALES["tiny"]), texts)
    wrong = dataclasses.replace(unknown, changed={"attention": "sorcery"})
    monkeypatch.setattr("nmtalign.reproduction.plan.chosen_ablations", lambda names, scale: [wrong])
    with pytest.raises(UsageError, match='ablation magic: attention = "sorcery": must be one of'):
        make_plan(ReproductionRequest(SCALES["tiny"]), texts)


def test_a_vocabulary_chosen_by_the_language_is_the_same_as_one_that_is_named(texts):
    sections = {**texts.sections, "prep": {"vocabulary": "auto", "shortlist": "30000"}}
    plan = make_plan(
        ReproductionRequest(SCALES["paper"], models="RNNsearch-50", ablations="vocabulary"),
        dataclasses.replace(texts, sections=sections),
    )
    assert plan.named("words-many").trained_as == "RNNsearch-50"
    assert {system.prep.vocabulary for system in plan.systems} == {"word", "bpe"}


def test_the_vocabularies_of_a_model_go_with_no_other_vocabulary(texts):
    given = dataclasses.replace(texts, sections={**texts.sections, "prep": {"vocabulary_from": "model"}})
    assert make_plan(ReproductionRequest(SCALES["tiny"]), given).systems
    with pytest.raises(UsageError, match="words-few needs other vocabularies: remove vocabulary_from"):
        make_plan(ReproductionRequest(SCALES["tiny"], ablations="vocabulary"), given)


def test_the_files_of_settings_name_all_files_from_their_own_folder(workspace, plan):
    (workspace / "terms.tsv").write_text("old\tvieux\n")
    file = workspace / "nmtalign.toml"
    file.write_text(file.read_text().replace("[translate]", '[translate]\nglossary = "terms.tsv"'))
    made = plan(models="RNNsearch-50")
    Corpora(made).make("corpus", lambda pairs: None, lambda step: None)
    [system] = made.systems
    write_settings(made, system)
    glossary = load_workspace(settings_file(made, system)).section("translate")[1]["glossary"]
    assert Path(glossary).resolve() == (workspace / "terms.tsv").resolve()
    adopting = dataclasses.replace(system.prep, vocabulary_from=str(made.base_corpus))
    other = dataclasses.replace(system, prep=adopting)
    write_settings(dataclasses.replace(made, systems=(other,), corpora={"corpus": adopting}), other)
    prep = load_workspace(settings_file(made, system)).section("prep")[1]
    assert Path(prep["vocabulary_from"]).resolve() == made.base_corpus.resolve()
    assert not {"vocabulary", "shortlist", "size"} & prep.keys()


def test_unknown_names_are_refused(texts):
    with pytest.raises(UsageError, match="--ablations spell: unknown; give all, none, or some of encoder,"):
        chosen_ablations("cell,spell", SCALES["tiny"])
    with pytest.raises(UsageError, match="--models Moses: unknown; give some of RNNencdec-30,"):
        make_plan(ReproductionRequest(SCALES["tiny"], models="Moses"), texts)
    with pytest.raises(UsageError, match=r"needs one that names a train text: \[corpus\] train = "):
        make_plan(ReproductionRequest(SCALES["tiny"]), Workspace())
    with pytest.raises(UsageError, match="must be greater than 0"):
        EqualBudget("hours", 0)


def test_a_budget_of_words_is_as_many_sentences_for_every_vocabulary(plan):
    made = plan(EqualBudget("words", 20_000), models="RNNencdec-30,RNNsearch-50", ablations="vocabulary")
    corpora = Corpora(made)
    for name in made.corpora:
        corpora.make(name, lambda pairs: None, lambda step: None)
    updates = {}
    for system in made.systems:
        corpus = Corpus.open(made.corpus_folder(system))
        updates[system.name] = with_budget(made, system, corpus, 1).max_updates
    train = Corpus.open(made.base_corpus).splits["train"]
    words = (float(train.target_lengths.mean()) + 1) * 40  # an update, but for the last batch of the epoch
    assert updates["RNNsearch-50"] == pytest.approx(20_000 / words, rel=0.15)
    assert updates["RNNencdec-30"] >= updates["RNNsearch-50"]  # of shorter sentences more are read
    assert updates["words-few"] == updates["RNNsearch-50"]
    assert updates["subwords"] == pytest.approx(updates["RNNsearch-50"], rel=0.1)


@pytest.mark.parametrize("name", ["test", "together", "a b", "a/b"])
def test_a_bad_name_of_a_test_set_is_refused(workspace, name):
    with (workspace / "nmtalign.toml").open("a") as stream:
        stream.write(f'[corpus.tests]\n"{name}" = ["dev.en", "dev.fr"]\n')
    with pytest.raises(UsageError, match=r"\[corpus.tests\] .*: give it another name"):
        make_plan(ReproductionRequest(SCALES["tiny"]), load_workspace(workspace / "nmtalign.toml"))


def test_test_sets_are_pairs_in_a_table(workspace):
    text = (workspace / "nmtalign.toml").read_text()
    for wrong, said in (("[corpus.tests]\nnews = 3\n", "tests.news = 3: must be two files"),):
        (workspace / "nmtalign.toml").write_text(text + wrong)
        with pytest.raises(UsageError, match=said):
            load_workspace(workspace / "nmtalign.toml")
    (workspace / "nmtalign.toml").write_text(text.replace("[corpus]", "[corpus]\ntests = 3"))
    with pytest.raises(UsageError, match=r"corpus.tests must be a table: write \[corpus.tests\] on a separate line"):
        load_workspace(workspace / "nmtalign.toml")


def test_a_budget_of_hours(plan):
    made = plan(EqualBudget("hours", 0.5))
    Corpora(made).make("corpus", lambda pairs: None, lambda step: None)
    config = with_budget(made, made.systems[0], Corpus.open(made.base_corpus), 7)
    assert (config.max_time, config.validate_every, config.max_updates, config.seed) == ("1800s", "90s", 0, 7)
