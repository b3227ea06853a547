"""`nmtalign score` without arguments in a workspace: models translate or kept translations are used, and all are
compared."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

LINES = ["the fox sees a red boat .", "", "a boat .", "the fox sees"]
REFERENCE = ["le renard voit un bateau rouge .", "", "un bateau .", "le renard voit wombat"]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def folder(tmp_path: Path, random_model: Path, blind_model: Path) -> Path:
    shutil.copytree(random_model, tmp_path / "models" / "a")
    shutil.copytree(blind_model, tmp_path / "models" / "b")
    for name, lines in (("test.en", LINES), ("test.fr", REFERENCE)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "nmtalign.toml").write_text(
        'model = "models/a"\n[corpus]\ntest = ["test.en", "test.fr"]\ntrain = ["test.en", "test.fr"]\n'
        '[score]\nmetrics = "bleu,chrf"\nbootstrap = 50\n[translate]\nthreads = 1\n'
    )
    return tmp_path


def test_bare_a_model_translates_the_test_set_once(folder: Path, run: Run) -> None:
    first = run("-m", "models/a", "--save-translation", "kept.fr", "--by-length", "--buckets", "3,6")
    assert first[0] == 0
    assert "translating 4 lines of" in first[2]
    assert "\nby words of the source (all):\n" in first[1]
    again = run("-m", "models/a", "--by-length", "--buckets", "3,6")
    assert again[:2] == first[:2]
    assert "is kept in" in again[2]
    given = run("kept.fr", "--by-length", "--buckets", "3,6", "-q")
    assert given == (0, first[1], "")


def test_all_models_are_compared_by_the_words_that_all_know(run: Run) -> None:
    code, out, err = run("--all", "--table1", "--by-frequency", "-q")
    assert (code, err) == (0, "")
    assert out.splitlines()[1] == "no unknown word: 3 of 4 sentences"  # no model knows `wombat`
    assert [line.split()[0] for line in out.splitlines()[2:5]] == ["model", "a", "b"]
    assert "\nwords from unknown and rare to frequent in training:\n" in out
    assert "unknown words: source 0.00%, reference 8.33%, " in out


def test_the_attention_of_a_model_is_drawn_and_one_without_is_said_to_have_none(folder: Path, run: Run) -> None:
    given = ["--all", "--differences", "1", "--attention"]
    code, out, err = run(*given, "--html", "report.html")
    assert code == 0
    assert "models/b: this model has no attention" in err
    assert "</s>" in out.partition("the most different sentence")[2]
    assert 'class="attention"' in (folder / "report.html").read_text()


def test_given_files_show_the_attention_of_the_model_that_is_named(folder: Path, run: Run) -> None:
    (folder / "other.fr").write_text("le bateau\n\nun bateau .\nle renard voit\n")
    given = ["other.fr", "test.fr", "--differences", "1", "--attention", "-m", "models/a"]
    code, out, _ = run(*given)
    assert code == 0
    drawn = out.partition("\nline 1, chrF2: ")[2]
    assert drawn.count("</s>") == 2


def test_the_language_of_the_workspace_chooses_the_tokeniser_of_bleu(folder: Path, run: Run) -> None:
    settings = (folder / "nmtalign.toml").read_text()
    (folder / "out").write_text("今天，老师看见猫。\n")
    for language, options, tokenizer in (
        ("zh", (), "zh"),
        ("th", (), "char"),
        ("zh", ("--tokenize", "char"), "char"),
        ("zh", ("--target-language", "th"), "char"),
    ):
        (folder / "nmtalign.toml").write_text(f'target_language = "{language}"\n{settings}')
        code, out, err = run("out", "-r", "out", *options)
        assert (code, err) == (0, "")
        assert "\nBLEU    100.00 " in out
        assert f"|tok:{tokenizer}|" in out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ["--all", "--save-translation", "kept.fr"],
            2,
            "--save-translation is for the translation of one model; give only this one, with -m",
        ),
        (["--all", "-m", "models/a"], 2, "--all scores the models under models/, and -m names one"),
        (["-m", "models/gone"], 4, "models/gone: no nmtalign model here"),
    ],
)
def test_every_mistake_is_one_line(run: Run, arguments: list[str], code: int, message: str) -> None:
    done = run(*arguments)
    assert done[:2] == (code, "")
    assert message in done[2]
    assert done[2].count("\n") == 1


@pytest.mark.parametrize("setting", ["buckets", "metrics", "tokenize"])
def test_a_wrong_setting_of_the_file_names_the_file(folder: Path, run: Run, setting: str) -> None:
    text = '[corpus]\ntest = ["test.en", "test.fr"]\n[score]\n'
    (folder / "nmtalign.toml").write_text(f'{text}{setting} = "5,x"\n')
    code, out, err = run("test.fr")
    assert (code, out) == (2, "")
    assert err.startswith(f"nmtalign: error: nmtalign.toml: [score] {setting} = ")
    assert err.count("\n") == 1
    (folder / "nmtalign.toml").write_text(text)
    given = run("test.fr", f"--{setting}", "5,x")[2]
    assert given.startswith(f"nmtalign: error: --{setting} 5,x: ")
