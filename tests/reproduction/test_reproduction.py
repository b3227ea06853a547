"""From a workspace to a report: the plan, complete and interrupted runs, and runs in which a command fails."""

import dataclasses
import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from helpers import command_line
from helpers.pages import PageReader

from nmtalign.data.corpus import Corpus
from nmtalign.errors import InputError, NmtalignError, UsageError
from nmtalign.files import folder_lock
from nmtalign.reproduction import steps
from nmtalign.reproduction.reproduction_report import PAPER, write_report
from nmtalign.reproduction.steps import Halted, Reproduction
from nmtalign.sample.sample_corpus import write_sample
from nmtalign.settings.command_settings import ReproduceConfig
from nmtalign.settings.definition import load_workspace
from nmtalign.settings.presets import PRESETS
from nmtalign.version import __version__

SMALLEST = {"embedding": 8, "hidden": 8, "attention_hidden": 5, "maxout": 4, "output_rank": 4, "bleu_sentences": 2}
TWO = "RNNencdec-50,RNNsearch-50"
NMTALIGN = steps.NMTALIGN
SEARCH = "[translate]\nmax_length_ratio = 1.0\nbeam = 1\n[score]\nbootstrap = 20\n"


@pytest.fixture(scope="module", autouse=True)
def smallest():
    """Models of a few units, and commands that start fast."""
    tiny = steps.SCALES["tiny"]
    small = dataclasses.replace(tiny, settings={**tiny.settings, **SMALLEST, "threads": 1, "device": "cpu"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(steps.SCALES, "tiny", small)
        patch.setattr(steps, "NMTALIGN", command_line.command())
        yield


def write_workspace(folder: Path) -> Path:
    """Writes a workspace of the sample grammar, with 12 sentences to test on."""
    write_sample(folder, 300)
    for name in ("dev.en", "dev.fr", "test.en", "test.fr", "test.align"):
        lines = (folder / name).read_text().splitlines(keepends=True)
        (folder / name).write_text("".join(lines[:12]))
    with (folder / "nmtalign.toml").open("a") as stream:
        stream.write(SEARCH)
    return folder


@pytest.fixture
def workspace(tmp_path):
    return write_workspace(tmp_path / "demo")


def make(workspace, notify=lambda message: None, **settings) -> Reproduction:
    """A reproduction that draws no figure 3; each model makes 3 updates."""
    settings = {"scale": "tiny", "words": 1000, "models": TWO, **settings}
    loaded = load_workspace(workspace / "nmtalign.toml")
    made = Reproduction(loaded, ReproduceConfig(**settings), workspace / "reproduction", notify, silent=True)
    made.lines = []
    return made


def rows_of(text: str, head: str) -> list[list[str]]:
    """The cells of the Markdown table whose head line begins so."""
    lines = text[text.index(head) :].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


def of_two_seeds(workspace, notify=lambda message: None) -> Reproduction:
    """A model and a system, with two seeds and two processes, and one drawn alignment."""
    made = make(workspace, notify, models="RNNencdec-50", systems="light", seeds=2, jobs=2)
    made.lines = [1]
    return made


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A report of two seeds and two test sets; read only."""
    workspace = write_workspace(tmp_path_factory.mktemp("made") / "demo")
    with (workspace / "nmtalign.toml").open("a") as stream:
        stream.write('[corpus.tests]\nmore = ["dev.en", "dev.fr"]\n')
    messages = []
    reproduction = of_two_seeds(workspace, messages.append)
    reproduction.run()
    write_report(reproduction)
    assert not any(message.endswith("done before") for message in messages)
    return reproduction


def test_a_folder_of_other_files_is_refused_but_not_one_that_a_killed_run_has_begun(workspace):
    (workspace / "reproduction/settings").mkdir(parents=True)
    make(workspace)
    (workspace / "reproduction/letter.txt").touch()
    with pytest.raises(UsageError, match=r"files that are not of nmtalign reproduce"):
        make(workspace)


def test_the_report_has_the_papers_tables_and_figures(made):
    text = (made.folder / "report.md").read_text(encoding="utf-8")
    one = rows_of(text, "| model | BLEU |")
    assert [row[0] for row in one] == ["RNNencdec-50", "light", "RNNsearch-50\\*", "Moses (more text)"]
    assert one[0][-2:] == [f"{number:.2f}" for number in PAPER["RNNencdec-50"]]
    assert one[0][-3] == "–"  # the baseline is not tested against itself
    assert [one[1][1], one[1][-3]] == [one[0][1], "–"]  # nor are equal scores; its p was 1 / 21
    assert rows_of(text, "| system | settings")[0] == ["light", 'cell = "light"']
    assert [row[1] for row in rows_of(text, "| model | updates |")] == ["3"] * 2
    assert [row[-1] != "–" for row in rows_of(text, "| model | updates |")] == [False, True]  # AER
    assert all("±" in row[2] for row in rows_of(text, "| model | seeds |"))
    assert rows_of(text, "| words | RNNencdec-50 |")
    figures = ["figures/length-test.svg", "figures/length-more.svg", "figures/alignment-2.svg"]
    assert re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text) == figures
    reader = PageReader((made.folder / "report.html").read_text(encoding="utf-8"))
    reader.check()
    assert len(reader.attributes("img")) == 3


def test_the_numbers_are_those_that_the_printed_commands_write(made):
    text = (made.folder / "report.md").read_text(encoding="utf-8")
    scores = json.loads((made.folder / "scores/test.json").read_text())
    known = json.loads((made.folder / "scores/test.known.json").read_text())
    row = rows_of(text, "| model | BLEU |")[1]
    assert row[1].split()[0] == f"{scores['systems'][1]['scores']['BLEU']['value']:.2f}"
    assert row[2].split()[0] == f"{known['systems'][1]['no_unk']['scores']['BLEU']['value']:.2f}"
    commands = text.rsplit("```sh\n", 1)[1].split("```")[0].splitlines()
    assert commands == [step.command for step in made.steps]
    kinds = [command.split()[1] for command in commands]
    assert kinds[:2] == ["prep", "train"]
    assert (kinds.count("train"), kinds.count("score")) == (4, 6)
    assert "nmtalign reproduce --scale tiny --models RNNencdec-50 --systems light --seeds 2" in text
    for kind, is_written in (("txt", True), ("known.txt", False)):
        texts = [path.read_text() for path in made.folder.glob(f"work/translations/*-1234.test.{kind}")]
        assert all(text.count("\n") == 12 and "<unk>" not in text for text in texts)
        assert is_written or not any("UNK" in text for text in texts)


def test_a_second_run_finds_all_done(made):
    report, messages = (made.folder / "report.md").read_bytes(), []
    again = of_two_seeds(made.folder.parent, messages.append)
    again.run()
    assert len(messages) > 20
    assert all(message.endswith("done before") for message in messages)
    assert write_report(again).read_bytes() == report


def run_until(workspace, number, **settings) -> list[bool]:
    """Runs until the command of this number begins; returns which commands were done before."""
    messages = []

    def stop(message):
        messages.append(message)
        if len(messages) == number:
            cut.stop("interrupted")

    cut = make(workspace, stop, **settings)
    with pytest.raises(Halted):
        cut.run()
    return [message.endswith("done before") for message in messages]


def test_an_interrupted_run_resumes_and_other_settings_are_refused(workspace):
    assert run_until(workspace, 5) == [False] * 5  # prep, and train and translate twice of the first model
    assert len(list((workspace / "reproduction/work/translations").glob("*.txt"))) == 2
    assert run_until(workspace, 6) == [True] * 4 + [False] * 2
    file = workspace / "nmtalign.toml"
    text = file.read_text()
    began = "reproduction: its models were begun with {}; give the same again, or another folder with -o"
    for settings, old, new in (
        ({"words": 1800}, "[reproduce] words = 1000", text),
        ({"words": None, "hours": 1}, "[reproduce] words = 1000", text),
        ({}, "[prep] shortlist = 2000", text.replace("= 2000", "= 30")),
        ({}, "no min_count in [prep]", text.replace("[prep]", "[prep]\nmin_count = 2")),
        ({}, "no precision in [train]", text.replace("[train]", '[train]\nprecision = "bf16"')),
    ):
        file.write_text(new)
        with pytest.raises(UsageError, match=re.escape(began.format(old))):
            make(workspace, **settings).run()
    file.write_text(text.replace("[train]", '[train]\ncheckpoint_every = "1m"'))
    assert run_until(workspace, 2) == [True, False]  # the training is complete
    file.write_text(text)
    (workspace / "reproduction/work/models").rename(workspace / "models")
    assert run_until(workspace, 2, words=1800) == [False] * 2  # nothing has been trained


def test_ctrl_c_saves_and_the_same_command_resumes(workspace):
    quick = "--scale", "tiny", "--models", "RNNencdec-50"
    code = f"from nmtalign.reproduction import steps; steps.NMTALIGN = {command_line.command()}"
    call, forks = command_line.command("reproduce", *quick, "--words", "6e4"), {command_line.CODE: code}
    with subprocess.Popen(call, stderr=subprocess.PIPE, text=True, env=os.environ | forks, cwd=workspace) as running:
        for line in running.stderr:
            if " dev loss " in line:  # it has made updates
                break
        running.send_signal(signal.SIGINT)
        rest = running.stderr.read()
    assert running.returncode == 130, rest
    assert rest.splitlines()[-1] == "nmtalign: error: interrupted; the same command resumes"
    model = workspace / "reproduction/work/models/RNNencdec-50.seed-1234"
    assert (model / "training_state.safetensors").is_file()
    again = command_line.run_nmtalign("reproduce", *quick, "--words", "6e4", cwd=workspace, variables=forks)
    assert again.returncode == 0, again.stderr
    assert b"resuming from update" in again.stderr
    assert again.stderr.endswith(b"reproduction/report.md: written\n")
    quiet = command_line.run_nmtalign("reproduce", *quick, "--words", "6e4", "-q", cwd=workspace)
    assert (quiet.returncode, quiet.stderr, quiet.stdout) == (0, b"", b"")


def test_one_run_at_a_time_works_in_a_folder_which_may_be_a_link(workspace):
    disk = workspace / "far/away/disk"
    disk.mkdir(parents=True)
    (workspace / "reproduction").symlink_to(disk, target_is_directory=True)
    assert run_until(workspace, 2) == [False] * 2  # prep finds its texts
    assert 'data = "../work/corpus"' in (disk / "settings/corpus.toml").read_text()
    settings = (disk / "settings/corpus.toml").stat().st_mtime_ns
    with folder_lock(disk):
        refused = command_line.run_nmtalign("reproduce", cwd=workspace)
    assert b"reproduction: another process is working in this folder" in refused.stderr
    assert (refused.returncode, (disk / "settings/corpus.toml").stat().st_mtime_ns) == (2, settings)


def test_its_commands_are_those_of_this_program_whatever_lies_in_the_folder(tmp_path):
    (tmp_path / "nmtalign.py").write_text("raise SystemExit('another program')")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    found = subprocess.run([*NMTALIGN, "--version"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (found.returncode, found.stdout) == (0, f"nmtalign {__version__}\n"), found.stderr


def test_a_command_that_fails_is_in_the_report_and_the_others_continue(workspace, monkeypatch):
    bad = steps.Experiment("bad", "rnnsearch-50", {"attention": "sorcery"})
    monkeypatch.setattr(steps, "chosen_experiments", lambda models, systems: [bad, *steps.PAPER_MODELS[:1]])
    messages = []
    reproduction = make(workspace, messages.append)
    reproduction.run()
    text = write_report(reproduction).read_text(encoding="utf-8")
    [message] = [message for message in messages if message.startswith("failed")]
    assert 'attention = "sorcery": must be one of' in message
    assert rows_of(text, "| missing file |")[0][0] == "work/models/bad.seed-1234/best.safetensors"
    assert rows_of(text, "| model | BLEU |")[0][0] == "RNNencdec-50"
    assert "bad" not in text.rsplit("```sh", 1)[1]
    monkeypatch.setattr(steps, "chosen_experiments", lambda models, systems: [bad])
    with pytest.raises(NmtalignError, match=r"no model could be trained: .*sorcery"):
        make(workspace).run()


def test_all_models_of_the_paper_are_trained_alike(workspace):
    for scale in steps.SCALES:
        reproduction = make(workspace, models="", scale=scale, words=None, hours=1.0)
        values = [reproduction._training(one, None) for one in reproduction.experiments]
        assert len({json.dumps({**one, "preset": ""}) for one in values}) == 1
        assert [PRESETS[one["preset"]]["max_length"] for one in values] == [50, 30, 30, 50]
    assert {*values[0]} == {"preset", "patience", "max_updates", "max_time", "validate_every"}


def first_new_command(workspace) -> str:
    """The first command that a run does not find done before; the run ends there."""
    new = []

    def stop(message):
        if not message.endswith("done before"):
            new.append(message.split()[2])
            made.stop("interrupted")

    made = make(workspace, stop, models="rnnsearch-50")
    with pytest.raises(Halted):
        made.run()
    return new[0]


def test_a_prepared_corpus_gives_the_budget_and_is_noticed_when_it_changes_as_gold_links_are(workspace, monkeypatch):
    assert command_line.run_nmtalign("prep", cwd=workspace).returncode == 0
    texts = '[corpus]\ntest = ["test.en", "test.fr"]\ngold = "test.align"'
    (workspace / "nmtalign.toml").write_text(f'data = "data"\n{texts}\n{SEARCH}')
    reproduction = make(workspace, words=20_000, models="RNNsearch-50")
    corpus = Corpus.open(workspace / "data")
    updates = reproduction._training(reproduction.experiments[0], corpus)["max_updates"]
    words = float(corpus.splits["train"].target.lengths.mean()) + 1
    assert updates == pytest.approx(20_000 / (words * 40), rel=0.1)
    with monkeypatch.context() as patch:
        patch.setattr(steps, "preset", lambda name: {"max_length": 1})  # no pair is so short, as the training says
        assert reproduction._training(reproduction.experiments[0], corpus)["max_updates"] == 20_000 / 40
    hours = make(workspace, words=None, hours=0.5, models="RNNsearch-50")
    values = hours._training(hours.experiments[0], corpus)
    assert (values["max_time"], values["validate_every"], values["max_updates"]) == ("1800s", "90s", 0)
    messages: list[str] = []
    make(workspace, messages.append, models="RNNsearch-50").run()
    assert messages[-1].startswith(f"[{len(messages)}/{len(messages)}] ")
    assert not (workspace / "reproduction/work/corpus").exists()
    for changed, first in (("test.align", "aer"), ("data/corpus.h5", "train")):
        os.utime(workspace / changed, (1, 1))
        assert first_new_command(workspace) == first


def test_a_corpus_in_one_file_and_settings_of_printing(workspace):
    pairs = zip(*((workspace / f"train.{side}").read_text().splitlines() for side in ("en", "fr")), strict=True)
    (workspace / "corpus.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    file = workspace / "nmtalign.toml"
    settings = file.read_text().replace('["train.en", "train.fr"]', '"corpus.tsv"')
    settings = settings.replace("beam = 1", 'beam = 2\nn_best = 2\nformat = "json"')
    file.write_text(settings.replace("bootstrap", 'fail_under = 100\nlength_of = "reference"\nbootstrap'))
    reproduction = make(workspace, models="RNNencdec-50")
    reproduction.run()
    (reproduction.folder / "figures/length-test.svg").unlink()
    reproduction = make(workspace, models="RNNencdec-50")
    reproduction.run()  # draws it again
    reproduction.workspace = dataclasses.replace(reproduction.workspace, file=workspace / "my own.toml")
    text = write_report(reproduction).read_text(encoding="utf-8")
    assert text.count("BLEU by words of the reference") == 3
    assert "nmtalign reproduce --config 'my own.toml' --scale" in text
    assert reproduction.failures == {}
    translated = (reproduction.folder / "work/translations/RNNencdec-50.seed-1234.test.txt").read_text()
    assert translated.count("\n") == 12
    assert "{" not in translated
    assert "beam = 2" in (reproduction.folder / "settings/corpus.toml").read_text()
    file.write_text(settings.replace("bootstrap", 'metrics = "chrf"\nbootstrap'))
    with pytest.raises(UsageError, match=r'metrics = "chrf": the report needs bleu'):
        make(workspace)


@pytest.mark.parametrize("change", [("", "test"), ("dev =", "dev")])
def test_a_text_that_nmtalign_toml_does_not_name(workspace, change):
    file = workspace / "nmtalign.toml"
    kept = [line for line in file.read_text().splitlines() if not line.startswith(change[0] or "test =")]
    file.write_text("\n".join(kept))
    with pytest.raises(UsageError, match=f"names no {change[1]} text, and `reproduce` needs one: {change[1]} = "):
        make(workspace)


def test_a_name_of_a_test_set_that_no_file_can_have_is_refused(workspace):
    with (workspace / "nmtalign.toml").open("a") as stream:
        stream.write('[corpus.tests]\n"news 2014" = ["dev.en", "dev.fr"]\n')
    with pytest.raises(UsageError, match=r"nmtalign\.toml: \[corpus\.tests\] 'news 2014': names files; give it a name"):
        make(workspace)


def test_sentences_set_aside_for_a_test_are_not_trained_on(workspace):
    file = workspace / "nmtalign.toml"
    file.write_text("\n".join(line for line in file.read_text().splitlines() if not line.startswith("test =")))
    assert command_line.run_nmtalign("prep", "--test-lines", "9", cwd=workspace).returncode == 0
    with pytest.raises(UsageError, match="names no test text"):  # the train text contains them
        make(workspace)
    file.write_text(file.read_text().replace("[prep]", "[prep]\ntest_lines = 9"))
    assert [*make(workspace).tests] == ["test"]
    file.write_text(file.read_text().replace("dev =", "#").replace("[prep]", "[prep]\ndev_lines = 9"))
    assert [*make(workspace).tests] == ["test"]


@pytest.mark.parametrize("name", ["train.en", "test.align"])
def test_a_text_that_is_missing_is_an_error_before_the_first_command(workspace, name):
    (workspace / name).unlink()
    with pytest.raises(InputError, match=rf"{name}: no such file or folder; .*nmtalign\.toml names it"):
        make(workspace)
    assert not (workspace / "reproduction").exists()
