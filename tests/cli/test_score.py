"""`nmtalign score` through real pipes: figures, tables, JSON, and one line for every mistake."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.command_line import run_nmtalign

from nmtalign.scoring.measuring import bleu
from nmtalign.text.tokenizer import Tokenizers
from nmtalign.text.vocabulary import Vocabulary

SOURCE = ["The cat sleeps.", "", "A dog and a wombat run over the small hill today.", "The dog runs."]
REFERENCE = ["Le chat dort.", "", "Un chien et un wombat courent sur la petite colline.", "Le chien court."]
HYPOTHESIS = ["Le chat dort.", "", "Un chien et un ours courent sur la colline.", "Le chien court ."]


def run(folder: Path, *arguments: str, stdin: str | bytes = "") -> subprocess.CompletedProcess[str]:
    data = stdin.encode() if isinstance(stdin, str) else stdin
    done = run_nmtalign("score", *arguments, cwd=folder, stdin=data)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def text(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "a folder"
    place.mkdir()
    for name, lines in (("test.en", SOURCE), ("test.fr", REFERENCE), ("out.fr", HYPOTHESIS)):
        (place / name).write_text(text(lines), encoding="utf-8")
    return place


@pytest.fixture
def model(folder: Path) -> Path:
    """Vocabularies that lack `wombat` and `hill`, as a model carries them."""
    words = ["The", "A", "the", "dog", "cat", "and", "a", "run", "runs", "sleeps", "over", "small", "today", "."]
    Vocabulary(["</s>", "<unk>", *words]).save(folder / "model" / "source.vocabulary.txt")
    words = ["Le", "Un", "un", "la", "chat", "chien", "et", "dort", "court", "courent", "sur", "petite", "."]
    Vocabulary(["</s>", "<unk>", *words]).save(folder / "model" / "target.vocabulary.txt")
    Tokenizers.moses("en", "fr").save(folder / "model")
    return folder / "model"


def columns(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_a_file_is_scored_in_aligned_columns(folder: Path) -> None:
    done = run(folder, "out.fr", "-r", "test.fr")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "sentences: 4"
    assert columns(lines[1]) == ["metric", "all", "signature"]
    expected = bleu(HYPOTHESIS, REFERENCE)
    assert columns(lines[2]) == ["BLEU", f"{expected.value:.2f}", expected.signature]
    assert [columns(line)[0] for line in lines[3:]] == ["chrF2", "chrF2++", "multi-bleu"]


@pytest.mark.parametrize("arguments", [["-", "-r", "test.fr"], ["-r", "test.fr"]])
def test_stdin_scores_as_a_file_does(folder: Path, arguments: list[str]) -> None:
    done = run(folder, *arguments, stdin=text(HYPOTHESIS))
    assert done.returncode == 0
    assert done.stdout == run(folder, "out.fr", "-r", "test.fr").stdout


def test_a_pipe_with_tee_gives_the_table_by_length(folder: Path) -> None:
    flags = "- -r test.fr -s test.en --by-length --no-confidence --metrics bleu,chrf,ter"
    command = f"cat out.fr | tee copy.fr | '{sys.executable}' -m nmtalign score {flags}"
    done = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, check=True)
    title, head, *rows = done.stdout.partition("by words of the source")[2].splitlines()
    assert title == " (all):"
    assert columns(head) == ["words", "sentences", "BLEU", "chrF2", "TER", "ratio", "BLEU"]
    labels = ["0", "1-10", "11-20", "21-30", "31-40", "41-50", "51-60", ">60", "all"]
    counts = ["1", "2", "1", "0", "0", "0", "0", "0", "4"]
    assert [columns(row)[:2] for row in rows] == [list(pair) for pair in zip(labels, counts, strict=True)]
    assert columns(rows[1])[2] == f"{bleu(HYPOTHESIS[::3], REFERENCE[::3]).value:.2f}"
    assert columns(rows[3])[2:] == ["-", "-", "-", "-"]


def test_buckets_are_those_given(folder: Path) -> None:
    done = run(
        folder, "out.fr", "-r", "test.fr", "-s", "test.en", "--by-length", "--buckets", "3,5", "--metrics", "chrf"
    )
    rows = done.stdout.partition("by words of the source (all):\n")[2].splitlines()
    assert [columns(row)[:2] for row in rows] == [
        ["words", "sentences"],
        ["0", "1"],
        ["1-3", "2"],
        ["4-5", "0"],
        [">5", "1"],
        ["all", "4"],
    ]


def test_the_subset_without_unknown_words(folder: Path, model: Path) -> None:
    done = run(folder, "out.fr", "-r", "test.fr", "-s", "test.en", "--known-words", "-m", "model")
    lines = done.stdout.splitlines()
    assert lines[1] == "no unknown word: 3 of 4 sentences"
    assert columns(lines[2]) == ["metric", "all", "no-unk", "signature"]
    known = [HYPOTHESIS[index] for index in (0, 1, 3)], [REFERENCE[index] for index in (0, 1, 3)]
    assert columns(lines[3])[1:3] == [f"{bleu(HYPOTHESIS, REFERENCE).value:.2f}", f"{bleu(*known).value:.2f}"]
    assert (
        run(folder, "out.fr", "-r", "test.fr", "-s", "test.en", "--known-words", "--data", "model").stdout
        == done.stdout
    )


def test_json_holds_everything(folder: Path, model: Path) -> None:
    flags = ["--by-length", "--known-words", "--format", "json", "--lowercase", "-m", "model"]
    record = json.loads(run(folder, "out.fr", "-r", "test.fr", "-s", "test.en", *flags).stdout)
    assert record["sentences"] == 4
    assert record["metrics"] == ["BLEU", "chrF2", "chrF2++", "multi-bleu"]
    assert "|tok:moses-fr|" in record["signatures"]["multi-bleu"]
    (system,) = record["systems"]
    assert system["name"] == "out.fr"
    assert system["scores"]["BLEU"]["value"] == bleu(HYPOTHESIS, REFERENCE, lowercase=True).value
    assert system["by_length"][1]["label"] == "1-10"
    assert system["by_length"][-1]["scores"]["BLEU"]["value"] is None
    assert system["no_unk"]["sentences"] == 3
    assert sum(row["sentences"] for row in system["no_unk"]["by_length"]) == 3


def test_the_workspace_gives_reference_source_and_settings(folder: Path, model: Path) -> None:
    settings = '[corpus]\ntest = ["test.en", "test.fr"]\n[score]\nby_length = true\nno_unk = true\nformat = "json"\n'
    (folder / "nmtalign.toml").write_text(settings)
    (system,) = json.loads(run(folder, "out.fr").stdout)["systems"]
    assert system["no_unk"]["sentences"] == 3
    assert (system["by_length"][0]["label"], system["by_length"][0]["sentences"]) == ("0", 1)
    assert run(folder, "out.fr", "--no-by-length", "--all-words", "--format", "text").stdout.startswith(
        "sentences: 4\nm"
    )


def test_empty_lines_are_no_mistake_and_the_score_is_no_exit_code(folder: Path) -> None:
    done = run(folder, "-", "-r", "test.fr", "-q", stdin="\n\n\n\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert columns(done.stdout.splitlines()[2])[1] == "0.00"


def on_terminal(folder: Path, columns: int, *arguments: str, **variables: str) -> list[str]:
    """The lines that are shown on a terminal with the given number of columns."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "nmtalign", "score", *arguments]
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm-256color", **variables}
    with subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=slave, env=environment) as process:
        os.close(slave)
        shown = b""
        try:
            while part := os.read(master, 4096):
                shown += part
        except OSError:  # how a terminal ends on Linux
            pass
        assert process.wait() == 0
    os.close(master)
    return shown.decode().splitlines()


def bare(text: str) -> str:
    """Without colours and bold letters."""
    return re.sub("\x1b\\[[0-9;]*m", "", text)


def test_a_terminal_gets_a_drawn_table_and_whole_signatures(folder: Path) -> None:
    lines = on_terminal(folder, 40, "out.fr", "-r", "test.fr", "--metrics", "bleu")
    assert any("│ BLEU" in line for line in lines)
    assert bleu(HYPOTHESIS, REFERENCE).signature in lines


def test_tables_on_a_narrow_terminal_are_broken_between_columns(folder: Path) -> None:
    given = ["out.fr", "-r", "test.fr", "-s", "test.en", "--by-length", "--buckets", "5", "--bootstrap", "50"]
    lines = on_terminal(folder, 60, *given, NO_COLOR="1")
    table = [bare(line) for line in lines[lines.index("by words of the source (all):") + 1 :]]
    assert max(map(len, table)) <= 60
    heads = [line.replace("┃", " ").split() for line in table if "words" in line]
    assert len(heads) > 1
    names = [name for head in heads for name in head if name not in ("words", "sentences")]
    assert names == ["BLEU", "[low,", "high]", "BLEU", "chrF2", "ratio", "chrF2++", "multi-bleu"]
    assert any("█" in line for line in table)


@pytest.mark.parametrize("columns", [80, 130])
def test_differences_are_coloured_on_a_terminal_that_can(folder: Path, columns: int) -> None:
    given = ["out.fr", "test.fr", "-r", "test.fr", "--differences", "1", "--metrics", "bleu", "--bootstrap", "50"]
    coloured = "\n".join(on_terminal(folder, columns, *given))
    assert "\x1b[1;31mours\x1b[0m" in coloured
    plain = "\n".join(on_terminal(folder, columns, *given, NO_COLOR="1"))
    assert "[-ours-]" in plain
    assert "{+wombat+}" in plain
    assert ("┃ out.fr" in bare(plain).partition("line 3, chrF2")[2]) == (columns == 130)


def test_a_reader_that_goes_early_is_no_error(folder: Path) -> None:
    command = f"'{sys.executable}' -m nmtalign score out.fr -r test.fr --format csv | head -n 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=folder, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("system,subset,by,label,")


def test_lines_end_at_newlines_only(folder: Path) -> None:
    odd = [line.replace("dort", "dort\u2028ici\rlà") for line in HYPOTHESIS]
    done = run(folder, "-", "-r", "test.fr", stdin=text(odd).replace("\n", "\r\n").removesuffix("\r\n"))
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "sentences: 4")


def test_a_tokenised_translation_is_noticed(folder: Path) -> None:
    (folder / "long.fr").write_text("Il dort bien .\n" * 120)
    done = run(folder, "long.fr", "-r", "long.fr", "--metrics", "chrf")
    assert done.stderr.startswith("nmtalign: warning: long.fr: not raw text, but text with spaces before punctuation")
    assert len(done.stderr.splitlines()) == 1
    assert run(folder, "long.fr", "-r", "long.fr", "--tokenize", "none", "--metrics", "bleu").stderr == ""
    (folder / "raw.fr").write_text("Il dort bien.\n" * 120)
    done = run(folder, "long.fr", "-r", "raw.fr", "--tokenize", "none", "--metrics", "bleu")
    assert "long.fr: not raw text" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["out.fr"], 2, "no reference: give it with -r"),
        ([], 2, "no reference: give it with -r"),
        (["-m", "model", "-r", "test.fr"], 2, "nothing to translate: give the source with -s"),
        (["out.fr", "-r", "test.fr", "--by-length"], 2, "scores by length: give the source with -s"),
        (["out.fr", "-r", "test.fr", "--known-words", "-m", "x"], 2, "known words: give the source with -s"),
        (["out.fr", "-r", "test.fr", "-s", "test.en", "--known-words"], 2, "--known-words: no model or corpus here"),
        (["out.fr", "-r", "test.fr", "-s", "test.en", "--known-words", "-m", "x"], 4, "x: no vocabularies here"),
        (
            ["out.fr", "-r", "reference", "--metrics", "multi-bleu"],
            2,
            "multi-bleu needs the language of the translation; give it with --target-language",
        ),
        (["out.fr", "-r", "test.fr", "--buckets", "10;20"], 2, "--buckets 10;20: give the upper ends"),
        (["out.fr", "-r", "test.fr", "--metrics", "bleu,tre"], 2, "unknown 'tre'; the nearest known one is 'ter'"),
        (["out.fr", "-r", "test.fr", "--tokenize", "intel"], 2, "unknown 'intel'; the nearest known one is 'intl'"),
        (["out.fr", "-r", "test.fr", "--format", "xml"], 2, "--format xml: must be one of text, json, csv"),
        (
            ["out.fr", "-r", "test.fr", "--save-translation", "kept.fr"],
            2,
            "--save-translation is for the translation of one model",
        ),
        (["-", "-r", "-"], 2, "only one of HYP, -r and -s can be stdin"),
        (["gone.fr", "-r", "test.fr"], 3, "gone.fr: cannot read: No such file"),
        (["out.fr", "-r", "gone.fr"], 3, "gone.fr: cannot read: No such file"),
        (["empty.fr", "-r", "test.fr"], 3, "empty.fr: is empty; nothing to score"),
        (["-", "-r", "test.fr"], 3, "standard input: is empty; nothing to score"),
        (["short.fr", "-r", "test.fr"], 3, "short.fr: has no line 2: it has 1 line, but test.fr has 4 lines"),
        (["out.fr", "-r", "test.fr", "-s", "short.fr"], 3, "short.fr: has no line 2: it has 1 line, but test.fr"),
        (["latin.fr", "-r", "test.fr"], 3, "latin.fr: line 2: not UTF-8 (byte 0xe9 at column 2)"),
    ],
)
def test_every_mistake_is_one_line(folder: Path, arguments: list[str], code: int, message: str) -> None:
    (folder / "empty.fr").touch()
    (folder / "short.fr").write_text("Le chat dort.\n")
    (folder / "reference").write_text(text(REFERENCE))
    (folder / "latin.fr").write_bytes(b"ici\nd\xe9j\xe0\n\n\n")
    done = run(folder, *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("nmtalign: error: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_scoring_loads_neither_torch_nor_matplotlib(folder: Path, model: Path) -> None:
    program = (
        "import sys; sys.argv = ['nmtalign', 'score', 'out.fr', '-r', 'test.fr', '-s', 'test.en', '--known-words',"
        " '-m', 'model', '--by-length', '--by-place', '--bootstrap', '50']\n"
        "from nmtalign.cli.app import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    print(end.code, {'torch', 'matplotlib'} & set(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("0 set()\n")


def test_bare_without_a_model_names_the_folder(folder: Path) -> None:
    (folder / "nmtalign.toml").write_text('model = "models/first"\n[corpus]\ntest = ["test.en", "test.fr"]\n')
    done = run(folder, "--by-length")
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith("nmtalign: error: models/first: no nmtalign model here")
