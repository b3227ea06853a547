"""`nmtalign score`: figures, tables, JSON, models that translate, and one line for every mistake."""

import contextlib
import csv
import functools
import io
import json
import os
import pty
import random
import re
import shlex
import shutil
import signal
import subprocess
import time

import pytest
from helpers.command_line import command

from nmtalign import Translator
from nmtalign.text.tokenizer import Tokenizers, Vocabulary

PHRASE = "le chat dort sur la petite colline et un chien court dans une rue avec elle"
WORDS = PHRASE.split()


def spoiled(lines, share, seed):
    """The lines without some of their words."""
    drawn = random.Random(seed)
    return [" ".join(word for word in line.split() if drawn.random() > share) for line in lines]


def write(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def read(path):
    return path.read_text(encoding="utf-8").splitlines()


TWO = ["good.fr", "bad.fr", "-r", "ref.fr", "-s", "src.en"]


@pytest.fixture
def folder(tmp_path):
    drawn = random.Random(1)
    lines = [" ".join(drawn.choices(WORDS, k=drawn.randint(3, 25))).capitalize() + "." for _ in range(60)]
    write(tmp_path / "ref.fr", lines)
    write(tmp_path / "ref2.fr", spoiled(lines, 0.05, 9))
    write(tmp_path / "src.en", [line.replace("le", "the") for line in lines])
    write(tmp_path / "good.fr", spoiled(lines, 0.1, 2))
    write(tmp_path / "bad.fr", spoiled(lines, 0.3, 3))
    return tmp_path


@pytest.fixture
def run(here):
    """(exit code, stdout, stderr) of `nmtalign score ARGUMENTS`."""
    return functools.partial(here, "score")


@pytest.fixture
def vocabularies(folder):
    """A folder of vocabularies without `elle`."""
    words = [*(word for word in WORDS if word != "elle"), *map(str.capitalize, WORDS), "the", "The", "."]
    for side in ("source", "target"):
        Vocabulary(["</s>", "<unk>", *words]).save(folder / "words" / f"{side}.vocabulary.txt")
    Tokenizers.moses("fr", "fr").save(folder / "words")
    return folder / "words"


def table(text, title="Scores:"):
    """The cells of the table under a title, to the next empty line."""
    return [line.split() for line in text.partition(f"{title}\n")[2].partition("\n\n")[0].splitlines()]


def test_a_pipe_scores_as_a_file_does(folder, run):
    flags = "-r ref.fr --metrics bleu,chrf"
    code = f"cat good.fr | tee copy.fr | {shlex.join(command('score', *flags.split()))} | head -n 4"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", code], cwd=folder, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    rows = table(run("good.fr", *flags.split())[1])
    assert [line.split() for line in done.stdout.splitlines()[2:]] == [["Scores:"], rows[0]]


def test_systems_are_compared_with_marks_and_p_values(run):
    code, out, err = run("good.fr", "poor=bad.fr", "-r", "ref.fr", "--metrics", "bleu")
    assert (code, err) == (0, "")
    head, good, poor, signature, interval, legend = table(out)
    assert head == ["system", "BLEU", "±", "p"]
    assert (good[0], good[2], good[-1]) == ("good.fr", "*", "–")
    assert (poor[0], len(poor)) == ("poor", 4)
    assert float(poor[-1]) < 0.05
    assert (interval[0], legend[:3]) == ("±:", ["*", "better", "than"])
    assert signature[1].startswith("BLEU|nrefs:1|bs:1000|seed:12345|")
    given = ["good.fr", "bad.fr", "-r", "ref.fr", "--metrics"]
    _, out, _ = run(*given, "bleu", "--significance", "both", "--set", "trials=100")
    assert table(out)[0] == ["system", "BLEU", "±", "p", "(bs)", "p", "(ar)"]
    _, out, _ = run(*given, "bleu,ter", "--significance", "none", "--no-confidence")
    assert [len(row) for row in table(out)[:3]] == [3, 3, 3]


@pytest.mark.parametrize("side", ["source", "reference"])
def test_lengths_are_those_of_the_chosen_side(run, folder, side):
    lines = (folder / "src.en").read_text().splitlines()
    write(folder / "src.en", [f"{line} {line}" for line in lines])
    given = [*TWO, "--by-length", "--set", "buckets=10,20", "--set", f"length_of={side}", "--no-confidence"]
    rows = table(run(*given)[1], f"BLEU by words of the {side} (all sentences, all systems):")
    lengths = [len(line.split()) * (2 if side == "source" else 1) for line in lines]
    assert [int(row[1]) for row in rows[1:3]] == [sum(n <= 10 for n in lengths), sum(10 < n <= 20 for n in lengths)]


def test_by_length_compares_the_systems_in_every_bucket(run):
    given = [*TWO, "--by-length", "--set", "buckets=10,20", "--metrics", "bleu,chrf"]
    _, out, _ = run(*given)
    rows = table(out, "BLEU by words of the source (all sentences, all systems):")
    assert rows[0] == ["words", "sentences", "good.fr", "bad.fr", "p"]
    assert [row[0] for row in rows[1:]] == ["1-10", "11-20", ">20", "all"]
    assert sum(int(row[1]) for row in rows[1:-1]) == int(rows[-1][1]) == 60
    own = table(out, "By words of the source (all sentences, bad.fr):")
    assert own[0] == ["words", "sentences", "BLEU", "[low,", "high]", "chrF2", "length", "ratio", "BLEU"]
    assert set(own[1][-1]) <= {"█", "▒"}


def test_known_words(run, vocabularies):
    given = [*TWO, "--known-words", "--metrics", "bleu,chrf", "--no-confidence"]
    assert "--known-words: no model or corpus here" in run(*given)[2]
    code, out, _ = run(*given, "-m", "words")
    assert code == 0
    found = json.loads(run(*given, "-m", "words", "--format", "json")[1])
    first = found["systems"][0]
    known, count = first["no_unk"]["scores"]["BLEU"]["value"], first["no_unk"]["sentences"]
    assert 0 < count < 60
    assert table(out, f"Sentences without an unknown word ({count} of 60):")[1][1] == f"{known:.2f}"
    assert table(out, "Words that are not in the vocabulary:")[0] == ["source:", f"{found['unknown']['source']:.2%}"]
    vocabularies.rename(vocabularies.parent / "model")  # the model of the workspace
    assert run(*given)[1] == out


def test_csv_and_json_contain_the_same_figures(run):
    given = [*TWO, "--by-length", "--metrics", "bleu,ter"]
    rows = list(csv.DictReader(io.StringIO(run(*given, "--format", "csv")[1])))
    found = json.loads(run(*given, "--format", "json")[1])
    for system in found["systems"]:
        for metric, score in system["scores"].items():
            wanted = [system["name"], "", metric]
            (row,) = (row for row in rows if [row[key] for key in ("system", "by", "metric")] == wanted)
            assert (row["value"], row["mark"]) == (str(score["value"]), score["mark"])
            assert row["p_bs"] == str(score["p_values"].get("bs") or "")
            assert row["signature"] == found["signatures"][metric]


def test_fail_under_is_the_exit_code_and_one_line(run):
    given = ["good.fr", "bad.fr", "-r", "ref.fr", "--metrics", "bleu", "-q"]
    assert run(*given, "--fail-under", "0")[0] == 0
    code, out, err = run(*given, "--fail-under", "60")
    assert (code, out[:12]) == (1, "60 sentences")
    assert err.startswith("nmtalign: BLEU below 60: bad.fr ")
    score = json.loads(run(*given, "--format", "json")[1])["systems"][0]["scores"]["BLEU"]["value"]
    code, _, err = run("good.fr", *given[2:], "--fail-under", repr(score + 1e-4))
    found = re.fullmatch(r"nmtalign: BLEU below (\S+): good.fr (\S+)\n", err)
    assert code == 1
    assert found
    assert float(found[2]) < score + 1e-4  # with as many digits as show the difference


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_and_leaves_nothing(folder, number, code):
    before = {path.name for path in folder.iterdir()}
    os.mkfifo(folder / "slow.fr")
    call = command("score", "slow.fr", "-r", "ref.fr", "--html", "page.html")
    # A shell that runs the tests in the background lets its children ignore Ctrl-C.
    heed = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    pipe = subprocess.PIPE
    process = subprocess.Popen(call, cwd=folder, stdout=pipe, stderr=pipe, text=True, preexec_fn=heed)
    with (folder / "slow.fr").open("wb", buffering=0) as slow:  # waits for the reader
        process.send_signal(number)
        while process.poll() is None:  # Python would not see a signal just before the system call that waits for text
            with contextlib.suppress(BrokenPipeError):
                slow.write(b"Il dort.\n" * 500)
            time.sleep(0.01)
    output, error = process.communicate()
    assert (process.returncode, output) == (code, "")
    assert error == f"nmtalign: error: {'interrupted' if number == signal.SIGINT else 'ended by SIGTERM'}\n"
    assert {path.name for path in folder.iterdir()} == before | {"slow.fr"}


def test_the_workspace_gives_texts_and_settings(folder, run):
    (folder / "nmtalign.toml").write_text(
        '[corpus]\ntest = ["src.en", "ref.fr"]\n[score]\nmetrics = "chrf"\nlowercase = true\nby_length = true\n'
        'bootstrap = 60\nseed = 3\nsignificance = "none"\nlength_of = "reference"\n'
    )
    _, out, _ = run("good.fr", "bad.fr")
    assert table(out)[0] == ["system", "chrF2", "±"]
    assert "|bs:60|seed:3|" in out
    assert "By words of the reference" in out
    given = ["--significance", "bs", "--metrics", "bleu", "--set", "length_of=source", "--set", "lowercase=false"]
    _, out, _ = run("good.fr", "bad.fr", *given)
    assert table(out)[0] == ["system", "BLEU", "±", "p"]
    assert "By words of the source" in out
    assert "|case:mixed|" in out
    # The source belongs to the reference of the test set.
    messages = run("good.fr", "-r", "ref2.fr", "--set", "length_of=source")[2]
    assert "scores by length: give the source with -s" in messages
    (folder / "nmtalign.toml").write_text('[score]\nbuckets = "5,x"\n')
    assert run("good.fr", "-r", "ref.fr")[2].startswith("nmtalign: error: nmtalign.toml: [score] buckets = ")


def test_a_page_has_the_tables_of_the_text_and_figure_2(folder, run):
    given = [*TWO, "--metrics", "bleu,chrf", "--by-length", "--differences", "2"]
    done = run(*given, "--html", "new/report.html", "--plot", "new/figure.svg")
    assert done[:2] == run(*given)[:2]
    assert done[2] == "nmtalign: wrote new/figure.svg\nnmtalign: wrote new/report.html\n"
    page = (folder / "new/report.html").read_text()
    parts = "nmtalign score good.fr bad.fr", "bad.fr: scores<", "60 sentences", "data:image/svg+xml", "By words of the"
    assert all(part in page for part in parts)
    assert (folder / "new/figure.svg").read_text().startswith("<?xml")
    code, out, err = run(*given[:4], "--html", "-")
    assert (code, out[:9]) == (0, "<!doctype")
    assert "Scores:" in err
    (folder / "one").write_text("Ein Satz.\n")
    assert "1 sentences" not in run("one", "-r", "one", "--html", "-")[1]


def test_segment_scores_are_a_metric_like_any_other(folder, run):
    drawn = random.Random(5)
    good = [round(drawn.gauss(0.8, 0.1), 4) for _ in range(60)]
    bad = [round(score - 0.1 + drawn.gauss(0, 0.02), 4) for score in good]
    write(folder / "good.comet", list(map(str, good)))
    write(folder / "bad.comet", list(map(str, bad)))
    given = [*TWO, "--metrics", "bleu", "--by-length"]
    given += ["--segment-scores", "COMET=good.comet", "--segment-scores", "COMET=bad.comet"]
    out = run(*given)[1]
    head, first, second, *_ = table(out)
    assert head == ["system", "BLEU", "±", "p", "COMET", "±", "p"]
    assert first[5:7] == [f"{sum(good) / 60:.4f}", "*"]
    assert float(second[-1]) < 0.05
    assert "COMET|scores:given|bs:1000|seed:12345|mean:sentences|nmtalign:" in out
    system = json.loads(run(*given, "--format", "json")[1])["systems"][1]
    assert system["scores"]["COMET"]["value"] == pytest.approx(sum(bad) / 60)
    lengths = [len(line.split()) for line in read(folder / "src.en")]
    inside = [score for score, length in zip(bad, lengths, strict=True) if 10 < length <= 20]
    row = next(row for row in system["by_length"] if row["label"] == "11-20")
    assert row["scores"]["COMET"]["value"] == pytest.approx(sum(inside) / len(inside))


def test_all_metrics_are_computed_only_on_demand(run):
    assert table(run("good.fr", "-r", "ref.fr")[1])[0] == ["system", "BLEU", "chrF2", "chrF2++"]
    head = table(run("good.fr", "-r", "ref.fr", "--metrics", "all")[1])[0]
    assert head == ["system", "BLEU", "chrF2", "chrF2++", "TER", "multi-bleu"]


def test_a_translation_that_another_program_has_processed_is_noticed(folder, run):
    texts = {"long.fr": "Il dort bien .", "pieces.fr": "Il dort b@@ ien.", "escapes.fr": "L&apos;eau."}
    signs = "spaces before punctuation", "pieces of words (b@@)", "escapes of Moses or XML (&apos;)"
    for (name, text), sign in zip(texts.items(), signs, strict=True):
        write(folder / name, [text] * 120)
        done = run(name, "-r", name, "--metrics", "chrf")
        assert done[2].startswith(f"nmtalign: warning: {name}: not raw text, but text with {sign}; give the raw text, ")
    assert run("long.fr", "-r", "long.fr", "--set", "tokenize=none", "--metrics", "bleu")[2] == ""


def test_models_translate_the_test_set(folder, run, random_model, blind_model):
    lines = ["the fox sees a red boat .", "", "a boat .", "the  fox \u2028 sees"]
    write(folder / "test.en", lines)
    write(folder / "test.fr", ["le renard voit un bateau rouge .", "", "un bateau .", "le renard voit wombat"])
    for name, model in (("a", random_model), ("b", blind_model)):
        shutil.copytree(model, folder / "models" / name)
    (folder / "nmtalign.toml").write_text(
        'model = "models/a"\n[corpus]\ntest = ["test.en", "test.fr"]\n[score]\nmetrics = "bleu,chrf"\n'
        "[translate]\nthreads = 1\nbeam = 3\nn_best = 9\n"  # for `translate --beam 9`
    )
    kept = [done.text for done in Translator.load(folder / "models" / "a", beam=3, threads=1).translate(lines)]
    (folder / "a").write_text("".join(f"{line}\n" for line in kept))
    code, out, err = run("--by-length", "--known-words", "--set", "buckets=3,6", "-q")
    assert (code, "Sentences without an unknown word (3 of 4):" in out) == (0, True)
    assert err.count("\n") <= 1  # a warning about the text
    given = run("a", "-m", "models/a", "--by-length", "--known-words", "--set", "buckets=3,6", "-q")
    assert given[1] == out
    assert run("-m", "models/a", "--by-length", "--known-words", "--set", "buckets=3,6", "-q")[1] == out
    code, out, _ = run("models/a", "models/b", "--known-words", "-q")
    assert (code, [row[0] for row in table(out)[1:3]]) == (0, ["a", "b"])
    code, out, err = run("-m", "models/gone")
    assert (code, out, err.count("\n")) == (4, "", 1)
    assert "models/gone: no nmtalign model here" in err


def test_a_terminal_gets_narrow_tables_and_colours(folder):
    given = [*TWO, "--by-length", "--set", "bootstrap=50", "--differences", "1"]
    for variables in ({}, {"TERM": "dumb"}):
        master, slave = pty.openpty()
        call = command("score", *given)
        environment = {**os.environ, "COLUMNS": "60", "TERM": "xterm-256color", **variables}
        with subprocess.Popen(call, cwd=folder, stdin=subprocess.DEVNULL, stdout=slave, env=environment) as process:
            os.close(slave)
            shown = b""
            try:
                while part := os.read(master, 4096):
                    shown += part
            except OSError:  # how a terminal ends on Linux
                pass
            assert process.wait() == 0
        os.close(master)
        text = shown.decode().replace("\r\n", "\n")
        assert ("\x1b[1;32m" in text) == (not variables)
        rows = text.partition("By words of the source (all sentences, good.fr):\n")[2].partition("\n\n")[0].split("\n")
        assert max(map(len, rows)) <= 60
        assert sum(row.startswith("words") for row in rows) > 1
