"""Commands and options of version 0.2: they work with a note, or one line says what to do."""

from pathlib import Path

import pytest
from helpers.commands import COMMANDS, call, run
from helpers.parallel_texts import write_pairs

from nmtalign.cli.old_names import _OPTIONS, current_command
from nmtalign.cli.options import options_of


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("doctor --format json", "info --format json"),
        ("plot --training a b -o c.png", "view a b -o c.png"),
        ("plot --training", "view model"),
        ("plot a.h5 -s 3 --links", "view a.h5 -s 3 --links"),
        ("explain --fixed b -o c.html", "view --live -m model --model b -o c.html"),
        ("explain a.en a.fr -m m", "view --live a.en a.fr -m m -o explain.html"),
        ("score-pairs a.en a.fr -m c --word-scores", "translate a.en --target a.fr -m c --word-scores"),
        ("score-pairs --n-best-list a -s a.en --rescore", "translate a.en --n-best-list a --rescore"),
    ],
)
def test_commands_work_with_a_note(capsys, old, new):
    assert current_command(old.split(), []) == new.split()
    assert capsys.readouterr().err == f"nmtalign: `nmtalign {old.split()[0]}` is now `nmtalign {new}`\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("train --cell lstm --no-copy --rho=0.5", "--set cell=lstm --set copy=false --set rho=0.5"),
        ("train --unidirectional", "--set bidirectional=false"),
        ("prep --joint --vocabulary bpe --max-length 7", "--set joint=true --set max_length=7"),
        ("translate --weights float32", "--set alignment_type=float32"),
        ("align a b --backward x --forward=y", "--model x --model y"),
        ("translate --replace_unk --tokenized", "--replace-unk"),
        ("score --cased --data x", "--set lowercase=false --model x"),
        ("serve --beam 5 --whole-lines", "--set beam=5 --set split_sentences=false"),
    ],
)
def test_options_work_with_a_note_that_names_the_new_ones(monkeypatch, tmp_path, capsys, old, new):
    monkeypatch.chdir(tmp_path)
    shown = call(*old.split(), "--show-settings")
    assert capsys.readouterr().err == f"nmtalign: from the next release on, write: {new}\n"
    assert shown.count("# --set\n") == new.count("--set")


@pytest.mark.parametrize("old", ["--average 5", "--agreement", "--r-drop=5", "--word-dropout 0.1"])
def test_options_that_our_measurements_reject_are_not_guessed_to_be_others(tmp_path, old):
    done = run(tmp_path, "train", *old.split())
    assert done.returncode == 2
    assert "average" in done.stderr if "average" in old else "leave it out" in done.stderr
    assert "nearest" not in done.stderr


@pytest.mark.parametrize("old", _OPTIONS)
def test_no_replacement_is_dead(old):
    command, option = old.split()
    known = getattr(COMMANDS[command].callback, "settings", {})
    assert option not in options_of(COMMANDS[command])
    assert option not in {name for one in known.values() for name in one.options}
    new = _OPTIONS[old].replace("=", " ").split()
    if new[0].startswith("-"):
        assert new[0] in options_of(COMMANDS[command])
        assert new[0] != "--set" or new[1] in known


def test_docs_prints_where_the_pages_are(tmp_path):
    done = run(tmp_path, "docs", "tutorial")
    assert (done.returncode, Path(done.stdout.rstrip()).name) == (0, "tutorial.md")
    assert done.stdout.rstrip() in run(tmp_path, "docs").stdout.splitlines()


def test_lexicon_writes_the_table_of_link(tmp_path):
    write_pairs(tmp_path, "a", [("the fox runs", "le renard court")] * 20)
    done = run(tmp_path, "lexicon", "a.en", "a.fr", "-o", "table")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert done.stderr.startswith("nmtalign: `nmtalign lexicon` is now a part of `nmtalign link`: ")
    assert run(tmp_path, "lexicon", "a.en", "a.fr").stdout == (tmp_path / "table").read_text() != ""
    assert {path.name for path in tmp_path.iterdir()} == {"a.en", "a.fr", "table"}
