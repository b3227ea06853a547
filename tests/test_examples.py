"""Every script in examples/ is run, on a corpus of 400 pairs and for a few updates."""

import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from helpers import command_line

from nmtalign import align
from nmtalign.settings.definition import resolve
from nmtalign.settings.presets import PRESETS
from nmtalign.settings.training_settings import ModelConfig
from nmtalign.text.tokenizer import Tokenizers

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
QUICK = ["--preset", "tiny", "--max-updates", "4"]


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    """Runs a script of examples/ with an `nmtalign` on the PATH."""
    environment = command_line.environment_with_nmtalign(tmp_path_factory.mktemp("bin"))
    environment |= {"PAIRS": "400", "SUBWORDS": "300"}

    def run(script, *arguments, cwd, stdin=""):
        program = "bash" if script.endswith(".sh") else sys.executable
        call = [program, str(EXAMPLES / script), *map(str, arguments)]
        result = subprocess.run(call, cwd=cwd, env=environment, input=stdin, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        return result.stdout

    run.environment = environment
    return run


@pytest.fixture(scope="module")
def workspace(shell, tmp_path_factory):
    folder = tmp_path_factory.mktemp("a workspace") / "demo"
    folder.parent.chmod(0o755)
    output = shell("quickstart.sh", folder, *QUICK, cwd=folder.parent)
    assert "BLEU" in output
    assert "AER" in output
    return folder


def test_quickstart(workspace):
    assert len((workspace / "out.fr").read_text().splitlines()) == len((workspace / "test.en").read_text().splitlines())
    assert (workspace / "alignments.h5").is_file()


def test_own_files(shell, workspace, tmp_path):
    parts = [workspace / name for name in ("train", "dev", "test")]
    assert "BLEU" in shell("own-files.sh", *parts, "en", "fr", *QUICK, cwd=tmp_path)
    assert len((tmp_path / "links.txt").read_text().splitlines()) == 40


def test_small_corpus(shell, workspace, tmp_path):
    parts = [workspace / name for name in ("dev", "dev", "test")]
    output = shell("small-corpus.sh", *parts, "en", "fr", *QUICK, cwd=tmp_path)
    rows = [line.split()[0] for line in output.splitlines() if line.startswith(("teacher", "student", "all"))]
    assert rows == ["teacher1", "teachers", "student", "all", "student", "all"]
    assert "case:lc" in output
    for language, second in (("en", workspace / "dev.en"), ("fr", tmp_path / "taught.fr")):
        texts = [path.read_text() for path in (workspace / f"dev.{language}", second)]
        assert (tmp_path / f"twice.{language}").read_text() == "".join(texts)


@pytest.mark.parametrize("keep", [False, True])
def test_adapt(shell, workspace, tmp_path, monkeypatch, keep):
    parts = [workspace / name for name in ("dev", "test", "test", "dev")]
    if keep:
        monkeypatch.setitem(shell.environment, "KEEP", str(workspace / "test"))
    output = shell("adapt.sh", workspace / "model", *parts, "en", "fr", *QUICK, cwd=tmp_path)
    assert [sum(line.startswith(name) for line in output.splitlines()) for name in ("before ", "after ")] == [2, 2]
    assert len((tmp_path / "adapted-train.fr").read_text().splitlines()) == (80 if keep else 40)
    assert (tmp_path / "adapted-slim/best.safetensors").is_file()


def test_back_translate(shell, workspace, tmp_path):
    english, french = ((workspace / f"train.{ending}").read_text().splitlines() for ending in ("en", "fr"))
    (tmp_path / "mono.fr").write_text("\n".join(["", *french]))  # an empty line, and no line break at the end
    parts = [workspace / "train", tmp_path / "mono", workspace / "dev", workspace / "test"]
    output = shell("back-translate.sh", *parts, "en", "fr", *QUICK, cwd=tmp_path)
    assert [sum(line.startswith(name) for line in output.splitlines()) for name in ("real ", "both ")] == [1, 1]
    sources = (tmp_path / "both.en").read_text().splitlines()
    assert sources[: len(english)] == english
    assert sources[len(english)] == ""
    synthetic = (tmp_path / "synthetic.en").read_text().splitlines()
    assert sources[len(english) + 1 :] == [f"♻ {line}" if line else "" for line in synthetic[1:]]
    assert (tmp_path / "both.fr").read_text().splitlines() == [*french, "", *french]
    assert Tokenizers.load(tmp_path / "data-both").source.tokenize(f"♻ {english[0]}")[0] == "▁♻"


def test_unknown_words(shell, workspace):
    assert "without an unknown word" in shell("unknown-words.sh", workspace, *QUICK, cwd=workspace)


def test_subwords(shell, workspace):
    output = shell("subwords.sh", workspace, *QUICK, cwd=workspace)
    assert '"n_best"' in output
    assert "BLEU" in output


def test_align_bitext(shell, workspace):
    output = shell("align-bitext.sh", workspace, workspace / "model", cwd=workspace)
    assert "pairs: 40" in output
    assert (workspace / "figure3.png").read_bytes().startswith(b"\x89PNG")


def test_compare_systems(shell, workspace):
    output = shell("compare-systems.sh", workspace, *QUICK, cwd=workspace.parent)
    assert all(name in output for name in ("attention", "none", "not good enough yet"))
    assert "<svg" in (workspace / "figure2.svg").read_text(encoding="utf-8")
    assert "<!doctype html>" in (workspace / "report.html").read_text(encoding="utf-8")[:100].lower()
    assert len((workspace / "scores.csv").read_text().splitlines()) > 10


def test_ablations(shell, workspace, monkeypatch):
    monkeypatch.setitem(shell.environment, "ROWS", "rnnsearch\nfixed-vector attention=none hidden=16\n")
    output = shell("ablations.sh", workspace, *QUICK, cwd=workspace.parent)
    assert all(name in output for name in ("rnnsearch", "fixed-vector"))
    config = (workspace / "ablations/fixed-vector/config.json").read_text()
    assert '"attention": "none"' in config
    assert '"max_time": ""' in config  # not the limit of the sample


def test_every_row_of_the_ablations_can_be_trained(workspace):
    script = (EXAMPLES / "ablations.sh").read_text(encoding="utf-8")
    rows = script[script.index("ROWS:-") : script.index('}"\nnmtalign score')].splitlines()[1:]
    assert len(rows) > 10
    for row in rows:
        settings = dict(pair.split("=") for pair in row.rstrip("}").split()[1:])
        typed = {name: {"true": True, "false": False}.get(value, value) for name, value in settings.items()}
        typed = {name: int(value) if str(value).isdigit() else value for name, value in typed.items()}
        sizes = {"source_vocabulary_size": 10, "target_vocabulary_size": 10}
        resolve(ModelConfig, ("preset", PRESETS["tiny"]), ("sizes", sizes), ("row", typed))


def test_fast_translation(shell, workspace, tmp_path):
    texts = [workspace / f"dev.{language}" for language in ("en", "fr")]
    arguments = workspace / "model", *texts, workspace / "test.en", tmp_path / "out.fr"
    shell("fast-translation.sh", *arguments, cwd=tmp_path)
    whole = (tmp_path / "out.fr").read_bytes()
    assert whole.count(b"\n") == 40
    shell("fast-translation.sh", *arguments, cwd=tmp_path)  # a complete file is left as it is
    assert (tmp_path / "out.fr").read_bytes() == whole


def test_rescore(shell, workspace, tmp_path):
    models = workspace / "model", workspace / "model"
    output = shell("rescore.sh", *models, workspace / "test.en", workspace / "test.fr", cwd=tmp_path)
    assert output.count("BLEU") >= 3
    # It is one model: an entry keeps its score, and its order, if its text is tokenised as it was written.
    texts = ((tmp_path / name).read_text().split("\n")[:-1] for name in ("nbest.txt", "rescored.txt"))
    written, rescored = ([line.split(" ||| ") for line in text] for text in texts)
    assert sorted(fields[:2] for fields in written) == sorted(fields[:2] for fields in rescored)
    before = {(number, text, features): float(score) for number, text, features, score in written}
    scores = []
    for number, text, features, score in rescored:
        own, nmtalign = features.rsplit(" nmtalign= ")
        if abs(float(own.split()[1]) - float(nmtalign)) < 1e-4:
            scores.append((int(number), before[number, text, own], float(score)))
    assert len(scores) > len(written) / 2
    assert all(old == pytest.approx(new, abs=1e-4) for _, old, new in scores)
    order = [(number, -new) for number, _, new in scores]
    assert order == sorted(order)
    assert len((tmp_path / "both.txt").read_text().splitlines()) == 40


def test_stream(shell, workspace, tmp_path):
    lines = ["Eleven bears walk.", "", "a  b"]
    output = shell("stream.sh", workspace / "model", "--beam", 2, cwd=tmp_path, stdin="".join(f"{x}\n" for x in lines))
    assert [line.partition(" -> ")[0] for line in output.splitlines()] == lines


def test_api(shell, workspace, tmp_path):
    rows = shell("api.py", workspace / "model", cwd=tmp_path, stdin="Eleven bears walk.\n\n").splitlines()
    assert [len(row.split("\t")) for row in rows] == [3, 3]
    assert rows[1] == "0.000\t\t"


def test_filter_corpus(shell, workspace, tmp_path):
    parts = [workspace / name for name in ("train", "test", "dev")]
    shell("filter-corpus.sh", *parts, "en", "fr", "0.25", *QUICK, cwd=tmp_path)
    rows = [list(map(float, line.split("\t"))) for line in (tmp_path / "filtered.scores").read_text().splitlines()]
    english, french = ((workspace / f"test.{ending}").read_text().splitlines() for ending in ("en", "fr"))
    for row in rows:
        shares = [sum(other[column] <= row[column] for other in rows) / 40 for column in (0, 1)]
        assert row[2] == pytest.approx(min(shares), abs=0.026)  # the file has six digits: equal values may look so
    best = sorted(sorted(range(40), key=lambda place: -rows[place][2])[:10])
    assert (tmp_path / "filtered.source").read_text().splitlines() == [english[place] for place in best]
    assert (tmp_path / "filtered.target").read_text().splitlines() == [french[place] for place in best]
    for place in (0, 17):
        there = align(tmp_path / "en-fr", [(english[place], french[place])], precision="auto")
        back = align(tmp_path / "fr-en", [(french[place], english[place])], precision="auto")
        one, other = next(there), next(back)
        entropies = [-record.token_log_probs.sum() / (len(record.target) + 1) for record in (one, other)]
        dual = math.exp(-(max(entropies) - min(entropies) + sum(entropies) / 2))
        shares = [min(1.0, sum(row[i] for row in one.weights[:-1])) for i in range(len(one.source))]
        assert rows[place][0] == pytest.approx(dual, rel=0.05)  # in other batches, perhaps with bf16
        assert rows[place][1] <= sum(shares) / len(shares) + 0.02
    assert (tmp_path / "model-filtered" / "config.json").is_file()


def test_the_image_gets_what_the_package_needs(tmp_path):
    """The instructions of the Dockerfile that need no Docker: what is copied installs, and its command runs."""
    text = (EXAMPLES / "Dockerfile").read_text().replace("\\\n", "")
    steps = [line.split(maxsplit=1) for line in text.splitlines() if not line.startswith("#")]
    for names in (rest.split() for name, rest in steps if name == "COPY"):
        for source in names[:-1]:
            copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy2
            copied = tmp_path / names[-1].strip("/")
            copied.parent.mkdir(exist_ok=True)
            if copy is shutil.copy2:
                copied.mkdir(exist_ok=True)
            copy(ROOT / source, copied)
    install = next(shlex.split(rest) for name, rest in steps if name == "RUN" and rest.startswith("pip install"))
    constraints, package = tmp_path / install[install.index("--constraint") + 1].strip("/"), install[-1]
    assert "torch==" in constraints.read_text()
    extras = tomllib.loads((tmp_path / "src/pyproject.toml").read_text())["project"]["optional-dependencies"]
    chosen = {*package.partition("[")[2].strip("]").split(",")}
    assert {"plot", "serve", "split"} <= chosen <= extras.keys()  # HTML is split into sentences, also by the server
    options = "-q", "--no-deps", "--no-index", "--no-build-isolation", "--target", tmp_path / "installed"
    folder = tmp_path / package.partition("[")[0].strip("/")
    subprocess.run([sys.executable, "-m", "pip", "install", *options, folder], check=True, capture_output=True)
    (command,) = (json.loads(rest) for name, rest in steps if name == "ENTRYPOINT")
    assert (tmp_path / "installed" / "bin" / command[0]).is_file()
    assert ["USER", "nmtalign"] in steps
    assert ["VOLUME", "/work"] in steps


@pytest.mark.skipif(
    shutil.which("docker") is None or subprocess.run(["docker", "info"], capture_output=True).returncode != 0,
    reason="needs a Docker daemon",
)
@pytest.mark.timeout(900)
def test_the_image_is_built_and_runs(tmp_path):
    build = ["docker", "build", "-f", EXAMPLES / "Dockerfile", "-t", "nmtalign-test", ROOT]
    subprocess.run(build, check=True, capture_output=True)
    user = f"{os.getuid()}:{os.getgid()}"
    run = ["docker", "run", "--rm", "-v", f"{tmp_path}:/work", "--user", user, "nmtalign-test"]
    subprocess.run([*run, "sample", "demo", "--pairs", "30"], check=True, capture_output=True)
    assert (tmp_path / "demo" / "train.en").is_file()


def test_every_example_has_a_test():
    files = Path(__file__), Path(__file__).with_name("test_engines.py")
    tested = {name for path in files for name in re.findall(r"^def test_(\w+)", path.read_text(), re.MULTILINE)}
    assert {path.stem.replace("-", "_") for path in EXAMPLES.iterdir() if path.suffix in (".sh", ".py")} <= tested


def test_the_index_lists_every_example():
    index = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    for path in EXAMPLES.iterdir():
        if path.suffix in (".sh", ".py"):
            assert f"| [{path.name}]({path.name}) |" in index
