"""From a workspace to a report: complete runs, interrupted runs, and runs in which experiments fail."""

import contextlib
import csv
import json
import re
from pathlib import Path

import pytest
import sacrebleu
import torch
from helpers.pages import PageReader
from helpers.reproductions import TWO, make_plan_in, reach, rows_of

from nmtalign.errors import NmtalignError, TrainingError, UsageError
from nmtalign.reproduction import running
from nmtalign.reproduction.experiments import PAPER_MODELS, EqualBudget
from nmtalign.reproduction.preparation import Corpora
from nmtalign.reproduction.report_tables import PAPER
from nmtalign.reproduction.reproduction_report import begin_folder
from nmtalign.reproduction.running import UNKNOWN, Halted
from nmtalign.text.vocabulary import UNK
from nmtalign.training.events import Started
from nmtalign.training.trainer import Trainer

NAMES = [experiment.name for experiment in PAPER_MODELS]
LINK = re.compile(r"!\[[^\]]*\]\(([^)]+)\)")


def without_times(text: str) -> str:
    """The report without measured times: hours and words per second of Table 2 and of systems, speeds of ablations."""
    kept = []
    for line in text.splitlines():
        cells = line.split(" | ")
        if re.match(r"\| \S+ \| \d+ \| [\d,]+ \| [\d.]+ \| ", line) and len(cells) == 11:
            cells[4] = cells[8] = "time"
        if len(cells) == 9:
            cells[6] = cells[7] = "time"
        if len(cells) > 11:
            cells[-4] = cells[-2] = "time"
        kept.append(" | ".join(cells))
    return "\n".join(kept)


@pytest.fixture(scope="module")
def results(make_sample, smallest):
    """The report of the four models; read only."""
    return reach(make_plan_in(make_sample(), smallest, sentences=(2, 3)))


def test_the_report_holds_the_papers_tables_and_figures(results):
    folder = results.plan.request.folder
    text = (folder / "report.md").read_text(encoding="utf-8")
    one = rows_of(text, "| model | BLEU |")
    assert [row[0] for row in one] == [*NAMES, "RNNsearch-50\\*", "Moses (more text)"]
    assert one[1][-2:] == [f"{PAPER['RNNsearch-30'].bleu:.2f}", f"{PAPER['RNNsearch-30'].no_unk:.2f}"]
    assert one[2][5] == "–"  # the baseline is not tested against itself
    two = rows_of(text, "| model | seed | updates |")
    assert [row[:3] for row in two[:4]] == [[name, "1234", "3"] for name in NAMES]
    assert two[4][:3] == ["paper: RNNencdec-30", "–", "846,000"]
    lengths = rows_of(text, "| words | sentences |")
    assert sum(int(row[1]) for row in lengths) == 12
    rates = rows_of(text, "| model | seed | AER |")
    assert [row[0] for row in rates] == ["RNNsearch-30", "RNNsearch-50"]
    claims = {row[1]: row for row in rows_of(text, "| test set | claim |")}
    gaps = claims["the gap grows from bucket to bucket"]
    assert len(gaps[2].split("; ")) == sum(row[1] != "0" for row in lengths) + 1
    assert gaps[3] == ("yes" if float(gaps[2].rpartition(" ")[2]) > 0 else "no")
    assert "418M words of monolingual text" in text
    assert "348M words" in text
    assert "multi-bleu|nrefs:1|bs:20|seed:12345" in text.replace("\\", "")


def test_pictures_sentences_and_links(results):
    folder = results.plan.request.folder
    text = (folder / "report.md").read_text(encoding="utf-8")
    linked = LINK.findall(text)
    assert linked == [f"figures/{name}.png" for name in ("length-test", "alignment-2", "alignment-3", "curves")]
    for name in linked:
        assert (folder / name).read_bytes().startswith(b"\x89PNG")
    source = (folder.parent / "test.en").read_text().splitlines()[1]
    assert source.split()[0] in text
    assert text.count("- **RNNencdec-30**: ") == 2  # two sentences side by side


def test_the_page_stands_alone(results):
    reader = PageReader((results.plan.request.folder / "report.html").read_text(encoding="utf-8"))
    reader.check()
    assert len([attributes for attributes in reader.attributes("svg") if attributes.get("role") == "img"]) == 4


def test_data_files(results):
    folder = results.plan.request.folder
    with (folder / "scores.csv").open(encoding="utf-8", newline="") as stream:
        scores = list(csv.DictReader(stream))
    assert {row["system"] for row in scores} == set(NAMES)
    assert {row["subset"] for row in scores} == {"all", "no-unk"}
    with (folder / "training.csv").open(encoding="utf-8", newline="") as stream:
        training = list(csv.DictReader(stream))
    assert [row["model"] for row in training] == NAMES
    assert all(float(row["dev_loss"]) > 0 and float(row["words"]) > 0 for row in training)
    facts = json.loads((folder / "settings.json").read_text())
    assert facts["systems"]["RNNencdec-30"]["training"]["max_length"] == 30
    assert facts["systems"]["RNNsearch-50"]["training"]["max_updates"] == 3
    assert all(len(system["hashes"]["1234"]) == 64 for system in facts["systems"].values())
    assert set(facts["texts"]) >= {"train source", "test target", "gold"}


def test_the_report_has_no_date_and_a_second_run_gives_the_same_bytes(results):
    folder = results.plan.request.folder
    names = ("report.md", "report.html", "scores.csv", "training.csv", "settings.json")
    before = {name: (folder / name).read_bytes() for name in names}
    pictures = folder / "figures" / "alignment-99.png", folder / "figures" / "mine.png"
    for picture in pictures:
        picture.write_bytes(b"PNG")
    with (folder / "report.md").open("a") as stream:
        stream.write("![of an earlier report](figures/alignment-99.png)\n")
    said = []
    reach(results.plan, said)
    assert [picture.exists() for picture in pictures] == [False, True]
    assert {name: (folder / name).read_bytes() for name in names} == before
    steps = [line for line in said if "] prep" in line or "] transl" in line]
    assert [line.endswith(": done before") for line in steps] == [True] * 5


@pytest.mark.parametrize("asked", [{"models": TWO}, {"systems": "rnnencdec,light"}], ids=["models", "systems"])
def test_an_interrupted_run_resumes_and_gives_the_same_report(plan, asked):
    budget = EqualBudget("updates", 12)  # more than there are between two reports
    whole = reach(plan(budget, "whole", **asked)).plan.request.folder
    cut = plan(budget, "cut", **asked)
    begin_folder(cut)
    stopped = running.Reproduction(cut, lambda line: None, _listener_that_stops(lambda: stopped))
    with pytest.raises(Halted):
        stopped.run()
    assert len(list((cut.work / "models").iterdir())) == 2  # the second one was cut off
    again = reach(cut).plan.request.folder
    texts = [(folder / "report.md").read_text().replace(f"-o {folder.name}", "") for folder in (whole, again)]
    assert without_times(texts[0]) == without_times(texts[1])
    assert (whole / "scores.csv").read_bytes() == (again / "scores.csv").read_bytes()


def _listener_that_stops(reproduction):
    """Stops a reproduction at the first update of its second model."""
    begun: list[Path] = []

    def listener_of(folder):
        begun.append(folder)

        def listen(event):
            if len(begun) == 2 and isinstance(event, Started):
                reproduction().stop("interrupted")

        return contextlib.nullcontext(listen)

    return listener_of


def test_a_failed_experiment_is_in_the_report_and_the_others_continue(plan, monkeypatch):
    run = Trainer.run

    def fails(self):
        if "RNNencdec-50" in str(self.folder):  # the baseline
            raise TrainingError("the loss was not finite 10 times in a row")
        return run(self)

    monkeypatch.setattr(Trainer, "run", fails)
    said = []
    results = reach(plan(models="RNNsearch-30,RNNencdec-50,RNNsearch-50"), said)
    reason = "the loss was not finite 10 times in a row"
    assert [line for line in said if " failed, " in line] == [f"RNNencdec-50 failed, the others continue: {reason}"]
    folder = results.plan.request.folder
    text = (folder / "report.md").read_text(encoding="utf-8")
    assert rows_of(text, "| experiment | seed |") == [["RNNencdec-50", "1234", reason]]
    assert rows_of(text, "| model | BLEU |")[1][1] == "–"
    assert "p against RNNsearch-30" in text
    assert "p is against RNNsearch-30" in text
    assert "against RNNencdec-50" not in text
    named = set(re.findall(r"--config settings/(\S+)", text))
    assert (
        named == {path.name for path in (folder / "settings").iterdir()} == {"RNNsearch-30.toml", "RNNsearch-50.toml"}
    )
    numbers = [int(line[1 : line.index("/")]) for line in said if line.startswith("[")]
    assert numbers == sorted(numbers)
    assert numbers[-1] <= 7


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (TrainingError("diverged"), "diverged"),
        (
            torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate 2.00 GiB."),
            "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        ),
        (MemoryError(), "MemoryError"),
    ],
    ids=["ours", "device memory", "memory"],
)
def test_where_nothing_can_be_done_the_first_error_is_raised(plan, monkeypatch, error, reason):
    monkeypatch.setattr(Trainer, "run", lambda self: (_ for _ in ()).throw(error))
    said = []
    with pytest.raises(NmtalignError, match=f"^no model could be trained: {re.escape(reason)}$"):
        reach(plan(models="RNNsearch-50"), said)
    assert said[-1] == f"RNNsearch-50 failed, the others continue: {reason}"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(143)], ids=repr)
def test_a_signal_is_no_failure_of_an_experiment(plan, monkeypatch, error):
    def ends(self):
        raise error

    monkeypatch.setattr(Trainer, "run", ends)
    said = []
    with pytest.raises(type(error)):
        reach(plan(models="RNNencdec-30,RNNsearch-50"), said)
    assert not any(" failed, " in line for line in said)


@pytest.mark.slow
def test_every_ablation_is_trained_and_compared_with_its_base(plan):
    results = reach(plan(models="RNNsearch-50", ablations="all"))
    assert results.outcome.failures == {}
    text = (results.plan.request.folder / "report.md").read_text(encoding="utf-8")
    rows = {row[1]: row for row in rows_of(text, "| ablation | variant | base |")}
    assert len(rows) == sum(bool(system.experiment.ablation) for system in results.plan.systems)
    assert all(re.fullmatch(r"[+-]\d+\.\d\d", row[4]) for row in rows.values())
    assert all(re.fullmatch(r"\d\.\d{3}" + "|–" * (row[4] == "+0.00"), row[5]) for row in rows.values())
    assert rows["beam of 1, the same model (trained as RNNsearch-50)"][4:6] == ["+0.00", "–"]  # the base itself
    assert rows["source read from its end"][2] == "RNNencdec-50"
    assert rows["the paper's training, mean over sentences"][2] == "loss-sum"
    assert rows["beam of 5, the same model (trained as RNNsearch-50)"][8] == rows["update, then generate"][8]
    assert all(row[7] != "–" for row in rows.values())
    assert (
        "nmtalign score RNNencdec-50=RNNencdec-50.test.txt source-reversed=source-reversed.test.txt -r ../test.fr"
        in text
    )
    with (results.plan.request.folder / "scores.csv").open(encoding="utf-8", newline="") as stream:
        compared = {row["system"]: row["compared_with"] for row in csv.DictReader(stream)}
    assert compared["source-reversed"] == "RNNencdec-50"
    assert set(compared) == {system.name for system in results.plan.systems}


def test_the_word_for_unknown_words_counts_in_the_first_column_alone(plan, workspace):
    toml = workspace / "nmtalign.toml"
    toml.write_text(re.sub("shortlist = .*", "shortlist = 8", toml.read_text()))
    for part, names in {"train": range(300), "dev": range(300, 312), "test": range(400, 412)}.items():
        words = ["dog" if number % 3 == 0 else f"Zor{number}" for number in names]
        for language in ("en", "fr"):
            (workspace / f"{part}.{language}").write_text("".join(f"{word} {word}\n" for word in words))
    toml.write_text(toml.read_text().replace('gold = "test.align"\n', ""))
    results = reach(plan(EqualBudget("updates", 150), models="RNNencdec-50"))
    outcome, known = results.outcome, results.outcome.known["test"]
    assert 0 < known.sum() < len(known)
    key = "RNNencdec-50", 1234
    assert any(UNKNOWN in line for line in outcome.translations[key]["test"])
    assert len(outcome.of_known[key]["test"]) == known.sum()
    assert not any(UNKNOWN in line or UNK in line for line in outcome.of_known[key]["test"])
    references = [line for line, whole in zip(outcome.tests[0].reference.lines, known, strict=True) if whole]
    system = results.scored[0].paper.systems[0]
    assert system.no_unk is not None
    said = outcome.of_known[key]["test"]
    expected = sacrebleu.corpus_bleu(said, [references]).score
    assert system.no_unk.whole.values[0] == pytest.approx(expected)
    assert system.no_unk.whole.sentences == known.sum() == results.scored[0].sentences_known
    expected = sacrebleu.corpus_bleu(outcome.translations[key]["test"], [outcome.tests[0].reference.lines])
    assert system.everything.whole.values[0] == pytest.approx(expected.score)
    text = (results.plan.request.folder / "report.md").read_text(encoding="utf-8")
    assert "(UNK, one wrong word), but not in the column" in text
    assert "--no-allow-unk" in text


def test_several_test_sets_and_seeds(plan, workspace):
    with (workspace / "nmtalign.toml").open("a") as stream:
        stream.write('[corpus.tests]\nmore = ["dev.en", "dev.fr"]\n')
    results = reach(plan(models=TWO, seeds=2, text=False, sentences=(1,)))
    assert [scored.test.name for scored in results.scored] == ["together", "test", "more"]
    text = (results.plan.request.folder / "report.md").read_text(encoding="utf-8")
    assert [row[1] for row in rows_of(text, "| model | seeds |")] == ["2", "2"]
    assert "±" in rows_of(text, "| model | seeds |")[0][2]
    assert "Long sentences" not in text
    source = (workspace / "test.en").read_text().splitlines()
    page = (results.plan.request.folder / "report.html").read_text(encoding="utf-8")
    assert not any(line in text or line in page for line in source if len(line.split()) > 3)
    assert (results.plan.request.folder / "figures" / "alignment-1.png").is_file()


def test_a_larger_budget_and_a_search_without_unknown_words_are_in_the_report(plan, workspace):
    toml = workspace / "nmtalign.toml"
    toml.write_text(toml.read_text().replace("[translate]\n", "[translate]\nallow_unk = false\n"))
    reach(plan(models="RNNsearch-50"))
    results = reach(plan(EqualBudget("updates", 5), models="RNNsearch-50"))
    assert [trained.updates for trained in results.trained.values()] == [5]
    text = (results.plan.request.folder / "report.md").read_text(encoding="utf-8")
    assert "RNNsearch-50, seed 1234, continued after a smaller budget was spent (at update 3)" in text
    assert "The models never write the word for unknown words, in any column." in text


def test_a_corpus_of_other_text_is_not_used(plan, workspace):
    made = plan(models="RNNsearch-50")
    begin_folder(made)
    Corpora(made).make("corpus", lambda pairs: None, lambda step: None)
    assert Corpora(made).is_made("corpus")
    with (workspace / "train.en").open("a") as english, (workspace / "train.fr").open("a") as french:
        english.write("A fox.\n")
        french.write("Un renard.\n")
    with pytest.raises(UsageError, match="was prepared from other text"):
        reach(plan(models="RNNsearch-50"))


def test_a_line_beyond_the_test_set_is_refused(plan):
    with pytest.raises(UsageError, match=r"--sentences 13: .*test\.en has lines 1 to 12"):
        reach(plan(sentences=(13,)))
